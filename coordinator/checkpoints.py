"""Checkpoints as the coordinator sees them: what a manifest holds, and the check of all files that it describes.

Servers write their parts into a temporary folder; only when all are there is the manifest written, everything made
durable, and the folder renamed. A folder without the temporary prefix is therefore always complete.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from coordinator.manifest_checks import check_manifest
from geartrain.checkpoint_layout import (
    MANIFEST_NAME,
    BaseCheckpoint,
    Count,
    Version,
    base_directory,
    check_base,
    manifest_refusal,
    read_manifest,
)
from geartrain.errors import CheckpointError
from geartrain.wire.messages import DenseSegment

FORMAT = 3
TEMPORARY_PREFIX = ".tmp-"
_BLOCK_BYTES = 1 << 20

Metrics = dict[str, int | float | str | None]
"""Figures by name; None where one has no value, as an AUC of one class, which `<name>_reason` explains in words."""


class _Numbered(msgspec.Struct, frozen=True):
    """What all formats have: one of another number may lack any other field."""

    format: int


class BestSoFar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The best pass of a run up to a cut, as early stopping needs it when the run is resumed.

    `value` is its metric (None: no pass had one yet), `version` that of its cut, `without_gain` the passes since.
    """

    pass_index: Count
    version: Version | None
    metrics: Metrics
    value: float | None
    without_gain: Count


class DataStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What later jobs must know of the training data.

    `standard`: mean and deviation by feature; `key_kinds`: the kind of ids by table.
    """

    standard: dict[str, tuple[float, Annotated[float, msgspec.Meta(gt=0)]]]
    key_kinds: dict[str, Annotated[str, msgspec.Meta(pattern="^(integer|string)$")]]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint holds.

    `servers`: all that wrote it, each with a file of every table and its range of the dense vector. `files` describes
    each file in the way of `geartrain.checkpoint_files`. `base`: the checkpoint that its deltas build on.
    `pass_versions`: the version on which each pass of the run began.
    """

    format: int
    job: str
    config: dict[str, Any]
    version: Version
    term: Count
    passes_done: Count
    samples: Count
    train_seconds: Annotated[float, msgspec.Meta(ge=0)]
    schedule: dict[str, Any]
    metrics: Metrics
    best: BestSoFar
    index: DataStatistics
    segments: list[DenseSegment]
    dense_optimizer: dict[str, Any]
    servers: list[str]
    files: dict[str, Any]
    pass_versions: list[Version]
    base: BaseCheckpoint | None = None


def load_manifest(directory: Path) -> Manifest:
    """Read the manifest of a checkpoint, and check all files that it needs, those of its base among them.

    Raises `CheckpointError` naming file and field.
    """
    manifest, base = read_manifests(directory)
    check_files(directory, manifest)
    if manifest.base is not None and base is not None:
        check_files(base_directory(directory, manifest.base), base)
    return manifest


def read_manifests(directory: Path) -> tuple[Manifest, Manifest | None]:
    """The manifest of a checkpoint, and that of its base if it is a delta, both whole; no other file is looked at.

    Raises `CheckpointError` naming file and field.
    """
    manifest = _read(directory)
    if manifest.base is None:
        return manifest, None
    base = _read(base_directory(directory, manifest.base))
    check_base(directory, manifest, manifest.base, base)
    if sorted(base.servers) != sorted(manifest.servers):
        reason = f"expected {', '.join(base.servers)} as in the base, got {', '.join(manifest.servers)}"
        raise manifest_refusal(directory, "servers", reason)
    return manifest, base


def _read(directory: Path) -> Manifest:
    path, number = directory / MANIFEST_NAME, read_manifest(directory, _Numbered).format
    if number != FORMAT:
        raise CheckpointError(
            f"{path}: format {number} is not known, expected {FORMAT}",
            file=str(path),
            field="format",
            value=str(number),
            expected=FORMAT,
        )
    manifest = read_manifest(directory, Manifest)
    check_manifest(directory, manifest)
    return manifest


def check_files(directory: Path, manifest: Manifest) -> None:
    """Every file of the manifest is there, as long as it was written and with its checksum.

    All bytes are read: a checkpoint is refused before a cluster is built on it, not in the middle of that.
    """
    for name, description in manifest.files.items():
        path = directory / name
        size = path.stat().st_size if path.is_file() else None
        if size != description.get("bytes"):
            raise CheckpointError(
                f"{path}: expected {description.get('bytes')} bytes, found {'no file' if size is None else size}",
                file=str(path),
                field="files",
                value=size,
                expected=description.get("bytes"),
            )
        crc32 = _crc32(path)
        if crc32 != description.get("crc32"):
            raise CheckpointError(
                f"{path} is damaged: expected the checksum {description.get('crc32')}, found {crc32}",
                file=str(path),
                field="crc32",
                value=crc32,
                expected=description.get("crc32"),
            )


def _crc32(path: Path) -> int:
    crc32 = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                crc32 = zlib.crc32(block, crc32)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}", file=str(path), field="files") from error
    return crc32
