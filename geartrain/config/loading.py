"""From a file, or plain data, to a checked and resolved `JobConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from geartrain.config.job import JobConfig
from geartrain.config.overrides import UNREADABLE_VALUE, apply_override, told
from geartrain.config.paths import default_allowed_roots, resolve_inside, resolve_root
from geartrain.config.validation import field_error
from geartrain.errors import ConfigError, GeartrainError

_SPLITS = ("train", "valid", "test")


def load_config(
    path: Path | str, overrides: Sequence[str] = (), allowed_roots: Sequence[Path] | None = None
) -> JobConfig:
    """The config in a YAML 1.2 or JSON (`.json`) file, with `key.path=value` overrides.

    Data are read under `allowed_roots`; None stands for the file's folder and $GEARTRAIN_DATA. Raises ConfigError with
    the facts field, value, expected and file.
    """
    path = Path(path)
    folder = path.resolve().parent
    fields = read_config(path, overrides)
    roots = default_allowed_roots(folder) if allowed_roots is None else allowed_roots
    try:
        return parse_config(fields, folder, roots)
    except ConfigError as error:
        raise ConfigError(error.message, **{**error.facts, "file": str(path)}) from None


def read_config(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The plain data of a config file with overrides, not yet checked. Raises ConfigError (facts file, line)."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{path}: expected a config file, {reason.lower()}", file=str(path), expected="a config file", value=reason
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text, {error}", file=str(path), expected="UTF-8 text") from None
    fields = _parse_json(text, path) if path.suffix == ".json" else _parse_yaml(text, path)
    if not isinstance(fields, dict):
        kind = type(fields).__name__
        raise ConfigError(f"{path}: expected a mapping of fields, got {kind}", file=str(path), expected="a mapping")
    for override in overrides:
        apply_override(fields, override)
    return fields


def parse_config(data: Mapping[str, Any], base_dir: Path, allowed_roots: Sequence[Path]) -> JobConfig:
    """A checked config with `data.root` made absolute.

    `data.root` is relative to `base_dir`; environment variables in it are expanded. Raises ConfigError
    with the facts field, value, expected.
    """
    checked = JobConfig.from_resolved(data)
    root = resolve_root(checked.data.root, base_dir, allowed_roots)
    for split in _SPLITS:
        for place, path in enumerate(getattr(checked.data, split)):
            resolve_inside(root, path, allowed_roots, f"data.{split}.{place}")
    return checked.model_copy(update={"data": checked.data.model_copy(update={"root": str(root)})})


def _parse_yaml(text: str, path: Path) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise _syntax_error(path, line, "YAML 1.2", error.problem or "cannot be read") from None
    except YAMLError as error:
        raise _syntax_error(path, 1, "YAML 1.2", str(error).splitlines()[0]) from None
    except UNREADABLE_VALUE as error:
        raise ConfigError(f"{path}: expected YAML 1.2, {told(error)}", file=str(path), expected="YAML 1.2") from None


def _parse_json(text: str, path: Path) -> Any:
    def refuse_constant(name: str) -> Any:
        raise ConfigError(f"{path}: expected a finite number, got {name}", file=str(path), expected="a finite number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            repeated = next(name for name in names if names.count(name) > 1)
            raise field_error(repeated, "each field once", repeated, file=str(path))
        return fields

    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise _syntax_error(path, error.lineno, "JSON", error.msg) from None
    except UNREADABLE_VALUE as error:
        raise ConfigError(f"{path}: expected JSON, {told(error)}", file=str(path), expected="JSON") from None


def _syntax_error(path: Path, line: int, language: str, problem: str) -> GeartrainError:
    return ConfigError(
        f"{path}, line {line}: expected {language}, {problem}",
        file=str(path),
        line=line,
        expected=language,
        value=problem,
    )
