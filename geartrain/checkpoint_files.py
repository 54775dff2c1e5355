"""What a manifest says of each file of a checkpoint: typed, and no part of a server told of twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from geartrain.checkpoint_layout import Count, Version, is_plain_name, manifest_refusal, wrong_field

Name = Annotated[str, msgspec.Meta(min_length=1)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="part"):
    """Length and checksum of a file, the server that wrote it, and the version whose state it has."""

    bytes: Count
    crc32: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    server: Name
    version: Version


class RowsFile(_File, frozen=True, kw_only=True, tag="rows"):
    """Rows of a table: all of a server, or as a delta those that changed since the version `base`."""

    table: Name
    num_rows: Count
    num_deleted: Count
    dim: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    row_dtype: Literal["fp32", "fp16", "bf16"]
    optimizer: Name
    state_width: Count
    sketch_bytes: Count
    kind: Literal["full", "delta"]
    base: Version | None


class DenseFile(_File, frozen=True, kw_only=True, tag="dense"):
    """A server's values of the dense vector, positions [start, stop)."""

    start: Count
    stop: Count
    optimizer: Name


class DenseStatesFile(DenseFile, frozen=True, kw_only=True, tag="dense_states"):
    """The optimizer states of these values."""


DescribedFile: TypeAlias = RowsFile | DenseFile | DenseStatesFile


def described_files(directory: Path, files: Mapping[str, Any]) -> dict[str, DescribedFile]:
    """The files of a manifest by name, every field of the right type and in its range.

    Raises `CheckpointError` naming the field, also when two files have the same part of a server.
    """
    described: dict[str, DescribedFile] = {}
    names: dict[tuple[str, str, str | None], str] = {}
    for name, fields in files.items():
        path = file_field(name)
        if not is_plain_name(name):
            raise manifest_refusal(directory, path, "no plain file name")
        try:
            about: DescribedFile = msgspec.convert(fields, DescribedFile)
        except msgspec.ValidationError as error:
            raise manifest_refusal(directory, *wrong_field(error, path)) from error
        other = names.setdefault(part_of(about), name)
        if other != name:
            raise manifest_refusal(directory, path, f"{told(part_of(about))} are already in {other}")
        described[name] = about
    return described


def part_of(about: DescribedFile) -> tuple[str, str, str | None]:
    """Server, part and table: what only one file of a checkpoint can have."""
    table = about.table if isinstance(about, RowsFile) else None
    return about.server, str(about.__struct_config__.tag), table


def told(part: tuple[str, str, str | None]) -> str:
    """A part in words."""
    server, kind, table = part
    what = kind if table is not None else {"dense": "dense values", "dense_states": "dense optimizer states"}[kind]
    return f"the {what} of server {server}" + (f" and table {table}" if table is not None else "")


def file_field(name: str, field: str = "") -> str:
    """The path of a field of a file's description."""
    return f'files["{name}"]' + (f".{field}" if field else "")
