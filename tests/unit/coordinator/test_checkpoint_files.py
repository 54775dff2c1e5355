"""Checkpoints are checked when they are read: the manifest, its files, its base."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from checkpoint_folders import ROWS, cut, files, manifest, rows_file

from coordinator.checkpoints import FORMAT, load_manifest
from geartrain.checkpoint_layout import MANIFEST_NAME, MAX_MANIFEST_BYTES, write_manifest
from geartrain.errors import CheckpointError

BASE = {"checkpoint": "full", "job": "job", "term": 1, "version": 3}


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    cut(tmp_path, "full")
    return cut(tmp_path, "delta", version=5, base=BASE, files=files(5, kind="delta", base=3))


def test_a_delta_is_checked_with_its_base(delta: Path) -> None:
    found = load_manifest(delta)
    assert found.base is not None and (found.version, found.base.version) == (5, 3)
    (delta.with_name("full") / "t.rows").write_bytes(b"abce")
    with pytest.raises(CheckpointError) as caught:
        load_manifest(delta)
    assert caught.value.facts["file"] == str(delta.with_name("full") / "t.rows")


def test_a_delta_without_its_base_is_refused_by_name(delta: Path) -> None:
    delta.with_name("full").rename(delta.with_name("moved"))
    with pytest.raises(CheckpointError, match="is a delta on 'full', which was expected beside it") as caught:
        load_manifest(delta)
    assert (caught.value.facts["field"], caught.value.facts["value"]) == ("base.checkpoint", "full")


@pytest.mark.parametrize("changes", [{"job": "other"}, {"term": 2}, {"version": 4}])
def test_another_checkpoint_of_the_bases_name_is_refused(tmp_path: Path, delta: Path, changes: dict[str, Any]) -> None:
    cut(tmp_path, "full", **changes)
    with pytest.raises(CheckpointError) as caught:
        load_manifest(delta)
    assert caught.value.facts["field"] == f"base.{next(iter(changes))}"


def test_a_base_without_the_whole_file_is_refused(tmp_path: Path, delta: Path) -> None:
    cut(tmp_path, "full", files={**files(), "t.rows": rows_file("s0", "other")})
    with pytest.raises(CheckpointError) as caught:
        load_manifest(delta)
    assert caught.value.facts["field"] == "base.files: table t of server s0"


def test_a_base_that_is_a_delta_is_refused(tmp_path: Path, delta: Path) -> None:
    cut(tmp_path, "full", base={**BASE, "version": 2}, files=files(kind="delta", base=2))
    with pytest.raises(CheckpointError) as caught:
        load_manifest(delta)
    assert caught.value.facts["field"] == "base.files: table t of server s0"


def test_a_base_of_other_servers_is_refused(tmp_path: Path, delta: Path) -> None:
    """Its rows of a server that the delta does not know would be left out."""
    both = {**files(), **{f"{name}.s1": about for name, about in files(server="s1").items()}}
    path = cut(tmp_path, "full", servers=["s0", "s1"], files=both)
    for name in both:
        (path / name).write_bytes(ROWS if "rows" in name else b"")
    load_manifest(path)
    with pytest.raises(CheckpointError, match="servers: expected s0, s1 as in the base, got s0") as caught:
        load_manifest(delta)
    assert caught.value.facts["file"] == str(delta / MANIFEST_NAME)


@pytest.mark.parametrize("name", ["", ".", "..", "../full", "/full", ".tmp-full", "delta", "a/b", "a\0b", "é" * 128])
def test_a_base_is_a_plain_name_beside_it(tmp_path: Path, delta: Path, name: str) -> None:
    path = cut(tmp_path, "delta", version=5, base={**BASE, "checkpoint": name})
    with pytest.raises(CheckpointError, match="expected beside it"):
        load_manifest(path)


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda path: (path / MANIFEST_NAME).unlink(), None),
        (lambda path: ((path / MANIFEST_NAME).unlink(), os.mkfifo(path / MANIFEST_NAME)), None),
        (lambda path: (path / MANIFEST_NAME).write_bytes(b'{"format": 1'), None),
        (lambda path: os.truncate(path / MANIFEST_NAME, MAX_MANIFEST_BYTES + 1), "manifest.json"),
        (lambda path: (path / "t.rows").write_bytes(b"abc"), "files"),
        (lambda path: (path / "t.rows").unlink(), "files"),
        (lambda path: (path / "t.rows").write_bytes(b"abce"), "crc32"),
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
        {"format": FORMAT - 1},
        {"format": FORMAT + 1},
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


@pytest.mark.parametrize("number", [2, FORMAT + 1])
def test_another_format_is_refused_by_its_number(tmp_path: Path, number: int) -> None:
    """Also where it has other fields than this one."""
    path = cut(tmp_path, "pass-1")
    write_manifest(path, {"format": number, "job": "job", "files": {}})
    with pytest.raises(CheckpointError, match=f"format {number} is not known, expected {FORMAT}") as caught:
        load_manifest(path)
    assert (caught.value.facts["file"], caught.value.facts["field"]) == (str(path / MANIFEST_NAME), "format")


def test_every_byte_of_the_manifest_counts(tmp_path: Path) -> None:
    path = cut(tmp_path, "pass-1") / MANIFEST_NAME
    content = path.read_bytes()
    for place in range(len(content)):
        for change in (1, 32, 128):
            path.write_bytes(content[:place] + bytes([content[place] ^ change]) + content[place + 1 :])
            with pytest.raises(CheckpointError) as caught:
                load_manifest(path.parent)
            assert caught.value.facts["file"] == str(path), place
            assert caught.value.facts["field"], place


@pytest.mark.parametrize(("old", "new"), [(b'"version": 3', b'"version": 4'), (b'"seed": 1', b'"seed": 2')])
def test_a_manifest_that_was_changed_is_refused_by_its_checksum(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = cut(tmp_path, "pass-1", config={"training": {"seed": 1}}) / MANIFEST_NAME
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(CheckpointError, match="its own checksum, crc32, is") as caught:
        load_manifest(path.parent)
    assert (caught.value.facts["file"], caught.value.facts["field"]) == (str(path), "crc32")


def test_a_manifest_without_its_checksum_is_refused(tmp_path: Path) -> None:
    path = cut(tmp_path, "pass-1") / MANIFEST_NAME
    fields = msgspec.json.decode(path.read_bytes())
    del fields["crc32"]
    path.write_bytes(msgspec.json.encode(fields))
    with pytest.raises(CheckpointError, match="its own checksum is missing") as caught:
        load_manifest(path.parent)
    assert (caught.value.facts["file"], caught.value.facts["field"]) == (str(path), "crc32")


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    path = cut(tmp_path, "pass-1") / MANIFEST_NAME
    assert {**manifest(), "crc32": msgspec.json.decode(path.read_bytes())["crc32"]} == json.loads(path.read_text())
