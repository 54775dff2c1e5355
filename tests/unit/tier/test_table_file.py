"""A table file gives back every bit, and whatever is wrong with one is refused by name before memory is taken."""

from __future__ import annotations

import errno
import os
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from table_samples import SCHEMA, bits, close, content, read_all, reforge, schemas, write

from embedding_tier.table_file import HEADER, INDEX, SCHEMA_LENGTH, TRAILER, TableSchema
from embedding_tier.table_reader import TableReader
from embedding_tier.table_writer import TableWriter
from geartrain.errors import CheckpointError
from geartrain.types import NUM_SHARDS
from kernels.hashing import shard_of


@given(
    schemas(),
    st.integers(0, 2**32),
    st.lists(st.integers(0, NUM_SHARDS - 1), unique=True, max_size=5),
    st.sampled_from([0.03, 1.0]),
    st.sampled_from([1024, 1000, 97]),
)
@settings(max_examples=50, deadline=None)
def test_every_bit_comes_back(schema: TableSchema, seed: int, shards: list[int], share: float, at_once: int) -> None:
    cut = content(schema, seed, shards, share)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        description = write(path, schema, cut, at_once)
        assert bits(read_all(path, description)) == bits(cut)
        assert description["bytes"] == path.stat().st_size
        assert description["crc32"] == zlib.crc32(path.read_bytes())
        assert (description["num_rows"], description["num_deleted"]) == (len(cut.rows.keys), len(cut.deleted))


def test_one_row_and_none(tmp_path: Path) -> None:
    one = TableSchema("t", "s0", 1, "fp32", "sgd", 0, 0, "full", 1, None)
    cut = content(one, 1, [int(shard_of(np.array([2**64 - 1], np.uint64))[0])], 0.001)
    for name, some in (("none", content(one, 1, [], 1.0)), ("one", cut)):
        description = write(tmp_path / name, one, some)
        assert bits(read_all(tmp_path / name, description)) == bits(some)
        with TableReader(tmp_path / name, description) as reader:
            assert sorted(reader.entries) == sorted(set(shard_of(some.rows.keys).tolist()))


def test_nothing_is_overwritten_and_what_was_not_finished_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with pytest.raises(RuntimeError), TableWriter(path, SCHEMA):
        raise RuntimeError
    assert not path.exists()
    write(path, SCHEMA, content(SCHEMA, 1, [], 1.0))
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="cannot be written") as caught:
        write(path, SCHEMA, content(SCHEMA, 1, [3], 1.0))
    assert caught.value.facts["file"] == str(path)
    assert path.read_bytes() == before


def test_a_full_disk_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("embedding_tier.table_writer.os.fsync", full)
    with pytest.raises(CheckpointError, match="cannot be written: No space left") as caught:
        write(tmp_path / "rows", SCHEMA, content(SCHEMA, 1, [0], 1.0))
    assert caught.value.facts["file"] == str(tmp_path / "rows")
    assert list(tmp_path.iterdir()) == []


def test_the_disk_is_asked_for_a_bounded_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedding_tier.table_writer.FLUSH_BYTES", 1000)
    told = []
    with TableWriter(tmp_path / "rows", SCHEMA, lambda: told.append((tmp_path / "rows").stat().st_size)) as writer:
        writer.append(0, content(SCHEMA, 1, [0, 7, 900], 1.0))
        description = writer.finish()
    assert len(told) > 3 and told == sorted(told) and told[-1] == description["bytes"]


@pytest.fixture
def sample(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "rows"
    return path, write(path, SCHEMA, content(SCHEMA, 1, [0, 7, 900], 0.2))


def refused(path: Path, description: dict[str, Any]) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught, TableReader(path, description) as reader:
        for shard in reader.entries:
            reader.read(shard)
    assert caught.value.facts["file"] == str(path)
    assert caught.value.facts["field"].startswith(f"table {description.get('table')}: ")
    return caught.value


def test_every_byte_counts(sample: tuple[Path, dict[str, Any]]) -> None:
    path, description = sample
    data = path.read_bytes()
    for position in {*range(0, len(data), 61), *range(HEADER.size), *range(len(data) - 400, len(data))}:
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        refused(path, description)


def test_every_length_but_the_right_one_is_refused(sample: tuple[Path, dict[str, Any]]) -> None:
    path, description = sample
    data = path.read_bytes()
    for length in {*range(0, len(data), 997), *range(60), *range(len(data) - 60, len(data))}:
        path.write_bytes(data[:length])
        assert "bytes" in refused(path, description).facts["field"]
        refused(path, {**description, "bytes": length})
    path.write_bytes(data + b"\0")
    assert "bytes" in refused(path, description).facts["field"]
    refused(path, {**description, "bytes": len(data) + 1})
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        TableReader(path, description)


@pytest.mark.parametrize("field", ["bytes", "num_rows", "num_deleted", *SCHEMA.__struct_fields__])
def test_another_file_than_the_manifest_describes_is_refused(sample: tuple[Path, dict[str, Any]], field: str) -> None:
    path, description = sample
    other = {**description, field: "other"}
    assert refused(path, other).facts["field"].endswith(f": {field}")
    del other[field]
    assert refused(path, other).facts["field"].endswith(f": {field}")


def change(field: str, value: int, place: int = 1) -> Callable[[NDArray[Any]], None]:
    def changed(records: NDArray[Any]) -> None:
        records[field][place] = value

    return changed


def overlapping(records: NDArray[Any]) -> None:
    records["offset"][1] = records["offset"][0]


def swapped(records: NDArray[Any]) -> NDArray[Any]:
    return records[[1, 0, 2]]


def doubled(records: NDArray[Any]) -> NDArray[Any]:
    return records[[0, 0, 1, 2]]


def ragged(records: NDArray[Any]) -> None:
    """As if there were states of fewer rows than keys: the block is one row too short for what it says."""
    records["num_rows"][1] += 1


def fewer(records: NDArray[Any]) -> NDArray[Any]:
    return records[:2]


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (change("num_rows", 2**60), "bytes of shard 7"),
        (change("num_deleted", 2**61), "bytes of shard 7"),
        (change("num_bytes", 2**62), "bytes of shard 7"),
        (change("offset", 2**63), "offset of shard 7"),
        (change("offset", 2**64 - 1, 0), "offset of shard 0"),
        (overlapping, "offset of shard 7"),
        (swapped, "offset of shard 7"),
        (doubled, "shards of the index"),
        (change("shard", 1024), "shards of the index"),
        (change("shard", 2**32 - 1, 2), "shards of the index"),
        (change("shard", 8), "keys of shard 8"),
        (ragged, "bytes of shard 7"),
        (fewer, "offset of the footer"),
        (change("num_sketch_bytes", 1), "sketch bytes of shard 7"),
        (change("num_sketch_bytes", 2**63), "sketch bytes of shard 7"),
        (change("crc32", 7), "crc32 of shard 7"),
    ],
)
def test_a_lying_index_is_refused_before_memory_is_taken(
    sample: tuple[Path, dict[str, Any]], index: Callable[[NDArray[Any]], Any], field: str
) -> None:
    path, description = sample
    forged = reforge(path, description, index)
    tracemalloc.start()
    error = refused(path, forged)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error.facts["field"] == f"table t: {field}"
    assert peak < 4 << 20
    assert all(not isinstance(fact, int) or fact < 2**63 for fact in error.facts.values())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"row_dtype": "fp8"}, "row_dtype"),
        ({"dim": 4}, "bytes of shard 0"),
        ({"dim": 2**53}, "bytes of shard 0"),
        ({"state_width": 5}, "bytes of shard 0"),
        ({"sketch_bytes": 0}, "sketch bytes of shard 0"),
        ({"base": None}, "base"),
        ({"kind": "full", "base": None}, "deleted keys of shard 0"),
        ({"kind": "full"}, "base"),
        ({"kind": "half"}, "schema"),
        ({"dim": -1}, "schema"),
        ({"dim": 2**53 + 1}, "schema"),
        ({"dim": 2**70}, "schema"),
        ({"dim": 2.5}, "schema"),
        ({"more": 1}, "schema"),
    ],
)
def test_a_lying_schema_is_refused(sample: tuple[Path, dict[str, Any]], fields: dict[str, Any], field: str) -> None:
    path, description = sample
    forged = reforge(path, description, schema=lambda told: told.update(fields))
    assert refused(path, forged).facts["field"] == f"table t: {field}"


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"\0"],
        [SCHEMA_LENGTH.pack(0)],
        [SCHEMA_LENGTH.pack(2**32 - 1), b"{}"],
        [SCHEMA_LENGTH.pack(2), b"{}"],
        [SCHEMA_LENGTH.pack(2), b"\xff\xfe"],
        [SCHEMA_LENGTH.pack(2), b"{}", b"\0" * (INDEX.itemsize - 1)],
        [b"\0" * (1 << 21)],
    ],
)
def test_a_footer_that_is_none_is_refused(sample: tuple[Path, dict[str, Any]], parts: list[bytes]) -> None:
    path, description = sample
    refused(path, close(path, description, path.read_bytes()[: HEADER.size], parts))


@pytest.mark.parametrize("trailer", [(2**63, 2**63), (0, 0), (2**64 - 1, 100), (16, 2**64 - 1), (16, 1 << 20)])
def test_a_trailer_that_points_elsewhere_is_refused(
    sample: tuple[Path, dict[str, Any]], trailer: tuple[int, int]
) -> None:
    path, description = sample
    data = path.read_bytes()
    _, _, *rest = TRAILER.unpack(data[-TRAILER.size :])
    path.write_bytes(data[: -TRAILER.size] + TRAILER.pack(*trailer, *rest))
    assert "footer" in refused(path, description).facts["field"]


def test_another_version_of_the_format_is_refused(sample: tuple[Path, dict[str, Any]]) -> None:
    path, description = sample
    data = path.read_bytes()
    path.write_bytes(HEADER.pack(data[:8], 2, 0) + data[HEADER.size :])
    assert "format version" in refused(path, description).message
