"""A manifest as a whole: what it says of the run, of versions, servers and files fits together. Pure.

Its fields are of the right types already. What is found here is found before any role of a job starts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coordinator.schedule import ScheduleState
from geartrain.checkpoint_files import (
    DenseFile,
    DenseStatesFile,
    DescribedFile,
    RowsFile,
    described_files,
    file_field,
    part_of,
    told,
)
from geartrain.checkpoint_layout import manifest_refusal, wrong_field
from geartrain.wire.messages import DenseSegment

if TYPE_CHECKING:
    from coordinator.checkpoints import Manifest

_SEGMENT_KINDS = ("parameter", "average")


def check_manifest(directory: Path, manifest: Manifest) -> None:
    """Raises `CheckpointError` naming the field in which the manifest contradicts itself, or lacks something."""
    files = described_files(directory, manifest.files)
    _check_progress(directory, manifest)
    _check_segments(directory, manifest.segments)
    _check_parts(directory, manifest.servers, files)
    _check_versions(directory, manifest, files)
    _check_dense(directory, manifest, files)


def _check_progress(directory: Path, manifest: Manifest) -> None:
    """Passes, their versions, the best of them, the schedule's memory."""
    best, passes = manifest.best, manifest.pass_versions
    if len(passes) != manifest.passes_done:
        reason = f"expected one version for each of {manifest.passes_done} passes, got {len(passes)}"
        raise manifest_refusal(directory, "pass_versions", reason)
    if passes != sorted(passes) or (passes and passes[-1] > manifest.version):
        reason = f"expected versions that ascend up to {manifest.version} at most, got {passes}"
        raise manifest_refusal(directory, "pass_versions", reason)
    if best.pass_index >= max(1, manifest.passes_done):
        reason = (
            f"expected one of the {manifest.passes_done} passes that are done, counted from 0, got {best.pass_index}"
        )
        raise manifest_refusal(directory, "best.pass_index", reason)
    if best.version is not None and best.version > manifest.version:
        raise manifest_refusal(directory, "best.version", f"expected {manifest.version} at most, got {best.version}")
    for path, metrics in (("metrics", manifest.metrics), ("best.metrics", best.metrics)):
        for name, value in metrics.items():
            if isinstance(value, str) != name.endswith("_reason"):
                wanted = "words" if name.endswith("_reason") else "a number or null"
                raise manifest_refusal(directory, f'{path}["{name}"]', f"expected {wanted}, got {value!r}")
    try:
        msgspec.convert(manifest.schedule, ScheduleState)
    except msgspec.ValidationError as error:
        raise manifest_refusal(directory, *wrong_field(error, "schedule")) from error


def _check_segments(directory: Path, segments: list[DenseSegment]) -> None:
    """The named ranges follow one another from 0 on, each as long as its shape says."""
    at = 0
    names: set[str] = set()
    for number, one in enumerate(segments):
        path = f"segments[{number}]"
        if not one.name or one.name in names:
            raise manifest_refusal(directory, f"{path}.name", f"expected a name of its own, got {one.name!r}")
        if one.kind not in _SEGMENT_KINDS:
            raise manifest_refusal(
                directory, f"{path}.kind", f"expected {' or '.join(_SEGMENT_KINDS)}, got {one.kind!r}"
            )
        if any(length < 0 for length in one.shape):
            raise manifest_refusal(directory, f"{path}.shape", f"expected lengths >= 0, got {list(one.shape)}")
        if one.start != at:
            raise manifest_refusal(
                directory, f"{path}.start", f"expected {at}, where the one before ends, got {one.start}"
            )
        at = one.start + math.prod(one.shape)
        if one.stop != at:
            raise manifest_refusal(directory, f"{path}.stop", f"expected {at} by its start and shape, got {one.stop}")
        names.add(one.name)


def _check_parts(directory: Path, servers: list[str], files: Mapping[str, DescribedFile]) -> None:
    """Every server that the manifest names has all its parts, and no other server has any."""
    if not servers or len(set(servers)) != len(servers):
        raise manifest_refusal(directory, "servers", f"expected names, each once, got {servers}")
    for name, about in files.items():
        if about.server not in servers:
            reason = f"expected one of `servers`, {', '.join(servers)}, got {about.server}"
            raise manifest_refusal(directory, file_field(name, "server"), reason)
    tables = sorted({about.table for about in files.values() if isinstance(about, RowsFile)})
    check_complete(directory, servers, tables, files.values())


def check_complete(
    directory: Path, servers: Iterable[str], tables: Iterable[str], files: Iterable[DescribedFile]
) -> None:
    """Raises `CheckpointError` unless there is a file for each part of each server, rows of these tables among them."""
    written = {part_of(about) for about in files}
    parts = [*(("rows", table) for table in tables), ("dense", None), ("dense_states", None)]
    for server, (part, table) in itertools.product(servers, parts):
        if (server, part, table) not in written:
            raise manifest_refusal(directory, "files", f"{told((server, part, table))} are missing")


def _check_versions(directory: Path, manifest: Manifest, files: Mapping[str, DescribedFile]) -> None:
    """All files are of the manifest's version, and its deltas build on the version of its base."""
    base = manifest.base.version if manifest.base is not None else None
    if base is not None and base > manifest.version:
        raise manifest_refusal(directory, "base.version", f"expected {manifest.version} at most, got {base}")
    for name, about in files.items():
        if about.version != manifest.version:
            reason = f"expected {manifest.version}, the manifest's version, got {about.version}"
            raise manifest_refusal(directory, file_field(name, "version"), reason)
        if not isinstance(about, RowsFile):
            continue
        if about.kind == "delta" and base is None:
            raise manifest_refusal(directory, "base", f"expected a checkpoint on which {name} builds, got none")
        wanted = base if about.kind == "delta" else None
        if about.base != wanted:
            reason = f"expected {wanted}, as its kind is {about.kind}, got {about.base}"
            raise manifest_refusal(directory, file_field(name, "base"), reason)
        if about.kind == "full" and about.num_deleted:
            reason = f"expected 0, as its kind is full, got {about.num_deleted}"
            raise manifest_refusal(directory, file_field(name, "num_deleted"), reason)


def _check_dense(directory: Path, manifest: Manifest, files: Mapping[str, DescribedFile]) -> None:
    """The servers' ranges, one after the other, are the dense vector that `segments` describe; states have the same."""
    values = {name: about for name, about in files.items() if type(about) is DenseFile}
    states = {about.server: name for name, about in files.items() if isinstance(about, DenseStatesFile)}
    at, length = 0, manifest.segments[-1].stop if manifest.segments else 0
    for name, about in sorted(values.items(), key=lambda one: (one[1].start, one[1].stop)):
        if about.start != at:
            reason = f"expected {at}, where the range before it ends, got {about.start}"
            raise manifest_refusal(directory, file_field(name, "start"), reason)
        if about.stop < at:
            raise manifest_refusal(directory, file_field(name, "stop"), f"expected {at} at least, got {about.stop}")
        at = about.stop
        theirs = states[about.server]
        for field in ("start", "stop", "optimizer"):
            got, wanted = getattr(files[theirs], field), getattr(about, field)
            if got != wanted:
                raise manifest_refusal(
                    directory, file_field(theirs, field), f"expected {wanted} as in {name}, got {got}"
                )
        kind = manifest.dense_optimizer.get("type")
        if about.optimizer != kind:
            reason = f"expected {kind}, the type of dense_optimizer, got {about.optimizer}"
            raise manifest_refusal(directory, file_field(name, "optimizer"), reason)
    if at != length:
        raise manifest_refusal(directory, "segments", f"expected {at} dense values, as the files have, got {length}")
