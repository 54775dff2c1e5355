"""Checkpoint folders: complete or invisible, checked when read, pruned."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator.checkpoints import (
    FORMAT,
    BestSoFar,
    DataStatistics,
    Manifest,
    load_manifest,
    prepare,
    publish,
)
from geartrain.checkpoint_layout import MANIFEST_NAME
from geartrain.errors import CheckpointError


def manifest(**changes: Any) -> dict[str, Any]:
    whole = Manifest(
        format=FORMAT,
        job="job",
        config={},
        version=3,
        term=1,
        passes_done=1,
        samples=10,
        train_seconds=1.0,
        schedule={},
        metrics={},
        best=BestSoFar(0, 3, {}, None, 0),
        index=DataStatistics({}, {}),
        segments=[],
        dense_optimizer={},
        files={"rows.npy": {"bytes": 4, "crc32": zlib.crc32(b"abcd")}},
    )
    return {**msgspec.to_builtins(whole), **changes}


def cut(root: Path, name: str, **changes: Any) -> Path:
    temporary = root / f".tmp-{name}"
    prepare(temporary)
    (temporary / "rows.npy").write_bytes(b"abcd")
    publish(temporary, root / name, manifest(**changes), ())
    return root / name


def test_a_published_cut_loads_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = cut(tmp_path, "pass-1")
    assert load_manifest(path).version == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["pass-1"]


def test_a_cut_replaces_one_of_the_same_name_and_removes_the_expired(tmp_path: Path) -> None:
    old = cut(tmp_path, "old")
    cut(tmp_path, "pass-1")
    temporary = tmp_path / ".tmp-again"
    prepare(temporary)
    (temporary / "rows.npy").write_bytes(b"wxyz")
    files = {"rows.npy": {"bytes": 4, "crc32": zlib.crc32(b"wxyz")}}
    publish(temporary, tmp_path / "pass-1", manifest(version=4, files=files), (old, tmp_path / "gone-already"))
    assert load_manifest(tmp_path / "pass-1").version == 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["pass-1"]


def test_what_a_death_left_is_cleared_before_the_next_cut(tmp_path: Path) -> None:
    (tmp_path / ".tmp-pass-1").mkdir()
    (tmp_path / ".tmp-pass-1" / "half.npy").write_bytes(b"x")
    prepare(tmp_path / ".tmp-pass-1")
    assert list((tmp_path / ".tmp-pass-1").iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda path: (path / MANIFEST_NAME).unlink(), None),
        (lambda path: (path / MANIFEST_NAME).write_bytes(b'{"format": 1'), None),
        (lambda path: (path / "rows.npy").write_bytes(b"abc"), "files"),
        (lambda path: (path / "rows.npy").unlink(), "files"),
        (lambda path: (path / "rows.npy").write_bytes(b"abce"), "crc32"),
    ],
)
def test_a_damaged_checkpoint_is_refused_naming_the_file(tmp_path: Path, damage: Any, field: str | None) -> None:
    path = cut(tmp_path, "pass-1")
    damage(path)
    with pytest.raises(CheckpointError) as caught:
        load_manifest(path)
    assert str(path) in caught.value.facts["file"]
    if field is not None:
        assert caught.value.facts["field"] == field


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"files": {"../outside": {"bytes": 1}}},
        {"files": {"a/b": {"bytes": 1}}},
        {"version": "three"},
        {"version": -1},
        {"passes_done": 2**63},
        {"unknown": 1},
    ],
)
def test_a_strange_manifest_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        load_manifest(cut(tmp_path, "pass-1", **changes))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"best": {}}, "best"),
        ({"best": {"pass_index": 0, "version": "x", "metrics": {}, "value": 0.5, "without_gain": 0}}, "best.version"),
        ({"index": {"standard": {}}}, "key_kinds"),
        ({"index": {"standard": {"age": [1.0]}, "key_kinds": {}}}, "index.standard"),
    ],
)
def test_a_damaged_part_of_the_manifest_is_named(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_manifest(cut(tmp_path, "pass-1", **changes))
    assert field in caught.value.facts["field"]
