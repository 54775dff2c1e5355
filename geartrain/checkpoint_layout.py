"""What both the coordinator and the embedding servers know of a checkpoint's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from geartrain.errors import CheckpointError

MANIFEST_NAME = "manifest.json"
"""The file that describes all others; it is written last."""


Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class BaseCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The full checkpoint that a delta builds on: a folder beside it, written by this job in this term."""

    checkpoint: str
    job: str
    term: Count
    version: Count


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


def base_directory(directory: Path, base: BaseCheckpoint) -> Path:
    """Where the base of the delta in `directory` is. Raises `CheckpointError` when it is not there."""
    name = base.checkpoint
    beside = directory.with_name(name) if name and Path(name).name == name and not name.startswith(".") else directory
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
