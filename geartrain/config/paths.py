"""Environment variables and folders: what a config may read, and where."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from geartrain.config.validation import field_error
from geartrain.errors import ConfigError

DATA_VARIABLE = "GEARTRAIN_DATA"
"""The environment variable whose folder is an allowed root."""

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def default_allowed_roots(folder: Path) -> tuple[Path, ...]:
    """The folders under which data may be read unless others are set: `folder` and, if set, that of GEARTRAIN_DATA."""
    data = os.environ.get(DATA_VARIABLE)
    return (real_path(folder), real_path(Path(data))) if data else (real_path(folder),)


def expand_variables(text: str, field: str) -> str:
    """`text` with every `${NAME}` replaced. What a variable in front leaves relative is taken from the working folder,
    as a shell would. Raises ConfigError that names a variable which is not set."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name not in os.environ:
            raise ConfigError(
                f"{field}: the environment variable {name} is not set",
                field=field,
                value=text,
                expected=f"the environment variable {name} to be set",
            )
        return os.environ[name]

    expanded = _VARIABLE.sub(value_of, text)
    return str(Path.cwd() / expanded) if _VARIABLE.match(text) else expanded


def resolve_root(text: str, base_dir: Path, allowed_roots: Sequence[Path], field: str = "data.root") -> Path:
    """The real absolute folder that `text` names, relative to `base_dir`.

    Raises ConfigError if it is outside the allowed roots (symbolic links followed), or no folder.
    """
    if "\0" in text:
        raise _outside(field, text, allowed_roots)
    folder = real_path(base_dir / expand_variables(text, field))
    if not _inside(folder, allowed_roots):
        raise _outside(field, text, allowed_roots)
    if not folder.is_dir():
        raise field_error(field, "a folder that exists", text)
    return folder


def resolve_inside(root: Path, path: str, allowed_roots: Sequence[Path] = (), field: str = "data") -> Path:
    """`path` (a file, or a glob that is still to be resolved) as an absolute path under `root`.

    What comes back is lexically under `root`, and its real place, symbolic links followed, is under `root` or one of
    `allowed_roots`. Raises ConfigError ("a path outside the allowed roots") otherwise, and for any `..`.
    """
    joined = root / path
    lexical = ".." not in PurePath(path).parts and "\0" not in path and joined.is_relative_to(root)
    if not lexical or not _inside(real_path(joined), (root, *allowed_roots)):
        raise _outside(field, path, (root,))
    return joined


def real_path(path: Path) -> Path:
    """`path` made absolute with symbolic links followed; a loop of links is left as it is."""
    return Path(os.path.realpath(path))


def _inside(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(real_path(root)) for root in roots)


def _outside(field: str, value: str, roots: Sequence[Path]) -> ConfigError:
    folders = ", ".join(str(root) for root in roots)
    return field_error(field, f"a path inside {folders}", value, note="a path outside the allowed roots")
