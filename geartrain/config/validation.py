"""One validation error, told as a `ConfigError` with the field's path as the user wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from geartrain.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
MAX_SHOWN_CHARS = 80

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "an integer",
    "list_type": "a list",
    "missing": "a value",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "none_required": "null",
    "string_type": "a string",
    "too_short": "a list that is not empty",
    "tuple_type": "a list",
}


def validate(model: type[Model], data: Mapping[str, Any]) -> Model:
    """`data` as an instance of `model`. Raises ConfigError (facts field, value, expected) for the first fault."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _told(error.errors()[0], data) from None


def field_error(field: str, expected: str, value: Any, note: str = "", **facts: Any) -> ConfigError:
    """ "field: expected ..., got ..." with the facts field, expected, value; `note` is added to the message."""
    message = f"{field}: expected {expected}, got {shown(value)}" + (f" ({note})" if note else "")
    return ConfigError(message, field=field, expected=expected, value=plain(value), **facts)


def plain(value: Any) -> Any:
    """`value` if it is plain JSON data, else its text: facts cross the wire."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return str(value)


def shown(value: Any) -> str:
    """`value` as JSON, cut to a length that fits a message."""
    text = json.dumps(plain(value), ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 3] + "..."


def _told(error: ErrorDetails, data: Mapping[str, Any]) -> ConfigError:
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    below = context.get("field")
    path = _user_path(error["loc"], data, keep_last=not below)
    if kind == "missing":
        field = ".".join(path)
        return ConfigError(
            f"{field}: expected a value, the field is missing", field=field, expected="a value", value=None
        )
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _told_tag(path, context, value)
    field = ".".join([*path, below] if below else path)
    if below and isinstance(value, Mapping):
        value = value.get(below)
    if kind == "unknown_field":
        known = str(context["expected"])
        return ConfigError(
            f"{field}: unknown field, expected one of {known}",
            field=field,
            expected=f"one of {known}",
            value=plain(value),
        )
    wanted = context.get("expected") or _EXPECTED.get(kind) or str(error["msg"])
    return field_error(field, f"one of {wanted}" if kind == "literal_error" else str(wanted), value)


def _told_tag(path: list[str], context: Mapping[str, Any], value: Any) -> ConfigError:
    name = str(context["discriminator"]).strip("'")
    field = ".".join([*path, name])
    if "expected_tags" not in context:
        return ConfigError(
            f"{field}: expected a value, the field is missing", field=field, expected="a value", value=None
        )
    return field_error(
        field, f"one of {context['expected_tags']}", value.get(name) if isinstance(value, Mapping) else value
    )


def _user_path(loc: tuple[int | str, ...], data: Any, keep_last: bool) -> list[str]:
    """`loc` without the parts that name a member of a union: they are no keys of the data.

    Nor is the name of a missing field, which stands last: `keep_last` keeps it.
    """
    path: list[str] = []
    here = data
    for place, part in enumerate(loc):
        last = keep_last and place == len(loc) - 1 and part != "[key]"
        if isinstance(here, Mapping):
            known = part in here
            here = here[part] if known else here
        elif isinstance(here, (list, tuple)):
            known = isinstance(part, int) and part < len(here)
            here = here[part] if isinstance(part, int) and known else here
        else:
            known = False
        if known or last:
            path.append(str(part))
    return path
