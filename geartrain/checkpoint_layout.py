"""What both the coordinator and the embedding servers know of a checkpoint's folder."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from geartrain.errors import CheckpointError

_Manifest = TypeVar("_Manifest")

MANIFEST_NAME = "manifest.json"
"""The file that describes all others; it is written last.

Its first field, `crc32`, is the checksum of every byte that comes after that field's line.
"""

MAX_MANIFEST_BYTES = 64 << 20
"""That of a job with hundreds of tables has some hundred thousand."""

_CHECKSUM_FIELD = "crc32"
_ABSENT_OR_UNKNOWN = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_CHECKSUM_LINE = re.compile(rb'\{\n "crc32": ([0-9]+),\n')

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Exact in every reader of JSON."""
Version = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
"""Rows keep theirs in 32 bits."""


class BaseCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The full checkpoint that a delta builds on: a folder beside it, written by this job in this term."""

    checkpoint: str
    job: str
    term: Count
    version: Version


class Described(Protocol):
    """What a manifest must have so that a delta can be told from its like."""

    @property
    def job(self) -> str: ...
    @property
    def term(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]: ...


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a checkpoint, with its checksum."""
    fields = msgspec.json.format(msgspec.json.encode(manifest), indent=1).removeprefix(b"{\n")
    (directory / MANIFEST_NAME).write_bytes(_sealed(fields))


def read_manifest(directory: Path, kind: type[_Manifest]) -> _Manifest:
    """The manifest of a checkpoint as a `kind`. Raises `CheckpointError` naming the file, and the field that is wrong.

    Where damage left a field that cannot be, that field is named, otherwise `crc32`.
    """
    path = directory / MANIFEST_NAME
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise OSError(0, "it is no file")
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise OSError(0, f"it has more than {MAX_MANIFEST_BYTES} bytes")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # no path has a NUL in it
        why = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"{directory} is no checkpoint: {MANIFEST_NAME} cannot be read ({why})",
            file=str(path),
            field=MANIFEST_NAME,
            expected="a directory that a finished cut wrote",
        ) from error
    line = _CHECKSUM_LINE.match(content)
    if line is None:
        raise CheckpointError(
            f"{path}: its own checksum is missing: expected {_CHECKSUM_FIELD} as the first field, on a line of its own",
            file=str(path),
            field=_CHECKSUM_FIELD,
            expected="the checksum of the manifest as its first field",
        )
    fields = content[line.end() :]
    try:
        manifest = msgspec.json.decode(b"{" + fields, type=kind)
    except msgspec.ValidationError as error:
        raise manifest_refusal(directory, *wrong_field(error)) from error
    except (ValueError, RecursionError) as error:  # msgspec's own are ValueErrors
        raise CheckpointError(f"{path} is damaged: {error}", file=str(path), field=MANIFEST_NAME) from error
    if content != _sealed(fields):
        told, got = line[1].decode(), zlib.crc32(fields)
        raise CheckpointError(
            f"{path} is damaged: its own checksum, {_CHECKSUM_FIELD}, is {told}, its content has {got}",
            file=str(path),
            field=_CHECKSUM_FIELD,
            value=str(got),
            expected=told,
        )
    return manifest


def _sealed(fields: bytes) -> bytes:
    """A manifest of these fields (JSON without its first brace), the checksum before them."""
    return b'{\n "crc32": %d,\n' % zlib.crc32(fields) + fields


def wrong_field(error: msgspec.ValidationError, below: str = "") -> tuple[str, str]:
    """The path of the field that is not what it must be, `below` before it, and what is expected of it."""
    reason, _, place = str(error).rpartition(" - at `$") if " - at `$" in str(error) else (str(error), "", "")
    path = below + place.removesuffix("`")
    odd = _ABSENT_OR_UNKNOWN.fullmatch(reason)
    if odd is not None:
        path, reason = f"{path}.{odd[2]}", "no such field is known" if "unknown" in odd[1] else "the field is missing"
    return path.removeprefix("."), reason[:1].lower() + reason[1:]


def manifest_refusal(directory: Path, field: str, reason: str) -> CheckpointError:
    """The error for a manifest that says something of a field that cannot be."""
    path = directory / MANIFEST_NAME
    return CheckpointError(f"{path} is damaged: {field}: {reason}", file=str(path), field=field)


def is_plain_name(name: str) -> bool:
    """Whether a manifest may name a file or folder like this: beside it, not hidden, as long as names may be."""
    fits = len(name.encode()) <= 255
    return fits and Path(name).name == name != "" and not name.startswith(".") and "\0" not in name


def base_directory(directory: Path, base: BaseCheckpoint) -> Path:
    """Where the base of the delta in `directory` is. Raises `CheckpointError` when it is not there."""
    name = base.checkpoint
    beside = directory.with_name(name) if is_plain_name(name) else directory
    if beside == directory or not (beside / MANIFEST_NAME).is_file():
        raise CheckpointError(
            f"{directory} is a delta on {name!r}, which was expected beside it",
            file=str(directory / MANIFEST_NAME),
            field="base.checkpoint",
            value=name,
            expected="the full checkpoint that the delta builds on, in the same folder",
        )
    return beside


def check_base(directory: Path, delta: Described, base: BaseCheckpoint, found: Described) -> None:
    """`found`, the manifest beside the delta in `directory`, is the one that it builds on.

    Raises `CheckpointError` naming the field in which it is another, or the file that it lacks.
    """
    path = directory.with_name(base.checkpoint) / MANIFEST_NAME
    wanted = {"job": base.job, "term": base.term, "version": base.version}
    for field, value in wanted.items():
        got = getattr(found, field)
        if got != value:
            raise CheckpointError(
                f"{path}: {field} is {got}, the delta {directory.name} builds on {value}",
                file=str(path),
                field=f"base.{field}",
                value=got,
                expected=value,
            )
    whole = {(about.get("server"), about.get("table")) for about in found.files.values() if about.get("kind") == "full"}
    for name, about in delta.files.items():
        part = (about.get("server"), about.get("table"))
        if about.get("kind") == "delta" and part not in whole:
            raise CheckpointError(
                f"{path}: no whole file of server {part[0]} and table {part[1]}, on which {name} builds",
                file=str(path),
                field=f"base.files: table {part[1]} of server {part[0]}",
            )
