"""`key.path=value`: one field of a config set from the command line."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from geartrain.config.validation import field_error
from geartrain.errors import ConfigError

UNREADABLE_VALUE = (ValueError, LookupError, RecursionError)
"""What the parsers raise, beside errors of syntax, for a value that Python cannot make: the 31st of February, an
integer of 5000 digits, a list in a list a thousand times."""


def told(error: Exception) -> str:
    """An `UNREADABLE_VALUE` in one line."""
    return "values are nested too deeply" if isinstance(error, RecursionError) else f"a value cannot be read: {error}"


def apply_override(fields: dict[str, Any], override: str) -> None:
    """Sets one field in place. The value is YAML; list elements are named by their index; sections are made as needed.

    Whether the field exists is for validation to say. Raises ConfigError for a path through what is no section.
    """
    path, equals, text = override.partition("=")
    parts = path.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(
            f"--set: expected key.path=value, got {override!r}",
            field="--set",
            value=override,
            expected="key.path=value",
        )
    value = _value(path, text)
    here: Any = fields
    for place, part in enumerate(parts[:-1]):
        here = _section(here, part, ".".join(parts[: place + 1]))
    if isinstance(here, list):
        here[_index(here, parts[-1], path)] = value
    else:
        here[parts[-1]] = value


def _value(path: str, text: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, *UNREADABLE_VALUE):
        raise field_error(path, "a YAML value", text) from None


def _section(here: Any, part: str, path: str) -> Any:
    """The section `part` of `here`, made if there is none."""
    if isinstance(here, list):
        below = here[_index(here, part, path)]
    else:
        if here.get(part) is None:
            here[part] = {}
        below = here[part]
    if not isinstance(below, (dict, list)):
        raise field_error(path, "a section, to set a field below it", below)
    return below


def _index(here: list[Any], part: str, path: str) -> int:
    if not part.isdecimal() or int(part) >= len(here):
        raise field_error(path, f"an index from 0 to {len(here) - 1}", part)
    return int(part)
