"""Whatever became of a checkpoint: a server that restores it refuses it by name, and takes no memory for a claim."""

from __future__ import annotations

import json
import queue
import shutil
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from fuzz_messages import INTEGERS, NAMED, PLAIN, TEXTS, damaged, quick
from fuzz_server import DENSE, TERM, good_pull, opening, serving, stage
from hypothesis import given
from hypothesis import strategies as st

from embedding_tier.control import ServerControl
from embedding_tier.server import TierServer
from embedding_tier.table_file import FORMAT_VERSION, INDEX, MAGIC, SCHEMA_LENGTH, TRAILER
from embedding_tier.table_reader import TableReader
from geartrain.checkpoint_layout import write_manifest
from geartrain.errors import CheckpointError
from geartrain.wire.framing import encode
from geartrain.wire.messages import (
    Applied,
    Apply,
    Contribution,
    DensePlaced,
    FromNode,
    JobOpened,
    NodeFailed,
    SnapshotBegun,
    SnapshotTaken,
    TableSpec,
    TakeSnapshot,
)

PATIENT_S = 60.0
MOST_BYTES = 1 << 20
"""What reading may take; the files here are a few kilobytes."""
TABLES = [
    TableSpec("a", 2, {"type": "adam"}, {"type": "uniform", "range": 0.5}, 1, "bf16"),
    TableSpec("b", 2, {"type": "sgd"}, {"type": "zero"}, 1, admission={"type": "count", "n": 5, "sketch_mb": 1}),
]


@dataclass(frozen=True)
class Saved:
    """A checkpoint, the content of its files, and the rows that `good_pull` reads after it was restored."""

    directory: Path
    files: dict[str, bytes]
    rows: bytes

    def restore(self, directory: Path | None = None) -> list[FromNode]:
        """What a server answers that shall restore it; the rows must be right if it does."""
        told: list[FromNode] = []
        control = ServerControl("s0", 1, TierServer("token", 1), told.append)
        opened = msgspec.structs.replace(opening(tables=TABLES), restore=str(directory or self.directory))
        answers = [control.handle(opened)]
        if isinstance(answers[0], JobOpened):
            answers.append(control.handle(msgspec.structs.replace(DENSE, put_by="")))
        for answer in answers:
            assert isinstance(answer, JobOpened | DensePlaced | NodeFailed), answer
            encode(answer)
            assert not isinstance(answer, NodeFailed) or answer.error["code"] in NAMED, answer.error
        return [answer for answer in answers if answer is not None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    directory = tmp_path_factory.mktemp("saved")
    told: queue.SimpleQueue[FromNode] = queue.SimpleQueue()
    control, tier = serving(tell=told.put, tables=TABLES)
    stage(tier, "w0")
    decision = Apply(TERM, 1, [Contribution(0, 0, ["w0"], 4, 1.0)], 4.0, 1.0, 1.0, 0.1, {"a": 0.1, "b": 0.1}, [0])
    assert isinstance(control.handle(decision), Applied)
    assert isinstance(control.handle(TakeSnapshot(TERM, 0, 1, str(directory))), SnapshotBegun)
    taken = told.get(timeout=PATIENT_S)
    assert isinstance(taken, SnapshotTaken), taken
    fields = {"job": "job", "term": TERM, "version": 1, "files": taken.files, "base": None}
    write_manifest(directory, fields)
    return Saved(directory, {path.name: path.read_bytes() for path in directory.iterdir()}, good_pull(tier))


@pytest.fixture
def whole(saved: Saved) -> Iterator[Saved]:
    """The checkpoint, whole before and after a test."""
    yield saved
    for name, content in saved.files.items():
        (saved.directory / name).write_bytes(content)


def test_the_checkpoint_can_be_restored(whole: Saved) -> None:
    assert [type(answer) for answer in whole.restore()] == [JobOpened, DensePlaced]


def test_any_damage_to_any_file_of_rows_or_dense_values_is_refused(whole: Saved) -> None:
    names = sorted(set(whole.files) - {"manifest.json"})
    assert len(names) == 4

    @quick
    @given(st.data(), st.sampled_from(names))
    def attempt(data: st.DataObject, name: str) -> None:
        content = data.draw(damaged(st.just(whole.files[name])))
        (whole.directory / name).write_bytes(content)
        last = whole.restore()[-1]
        (whole.directory / name).write_bytes(whole.files[name])
        if content == whole.files[name]:
            assert isinstance(last, DensePlaced)
        else:
            assert isinstance(last, NodeFailed) and last.error["code"] == "checkpoint_invalid"
            assert last.error["file"].endswith(name)

    attempt()


def test_a_file_that_is_no_file_is_refused(whole: Saved, tmp_path: Path) -> None:
    for name in whole.files:
        copy = tmp_path / "copy"
        shutil.copytree(whole.directory, copy)
        (copy / name).unlink()
        assert isinstance(whole.restore(copy)[-1], NodeFailed)
        (copy / name).mkdir()
        assert isinstance(whole.restore(copy)[-1], NodeFailed)
        shutil.rmtree(copy)


ODD_JSON = PLAIN.filter(lambda value: not isinstance(value, bytes)) | st.integers(-(10**40), 10**40)


def test_a_manifest_of_any_content_is_refused_or_restored(whole: Saved) -> None:
    path = whole.directory / "manifest.json"
    names = sorted(name for name in whole.files if name != path.name)
    fields = ["job", "term", "version", "base", "files"]
    about = ["bytes", "crc32", "part", "server", "table", "dim", "row_dtype", "num_rows", "kind", "base", "version"]
    about += ["start", "stop", "optimizer", "state_width", "sketch_bytes", "num_deleted"]
    bases = st.fixed_dictionaries({"checkpoint": TEXTS, "job": TEXTS, "term": INTEGERS, "version": INTEGERS})

    @quick
    @given(st.sampled_from(fields), st.sampled_from(names), st.sampled_from(about), ODD_JSON | bases, st.integers(0, 2))
    def attempt(field: str, name: str, told: str, value: Any, where: int) -> None:
        manifest = json.loads(whole.files[path.name])
        del manifest["crc32"]
        if where == 0:
            manifest[field] = value
        elif where == 1:
            manifest["files"][name][told] = value
        else:
            manifest["files"][str(value)] = manifest["files"].pop(name)
        # Whatever it says, it has the right checksum.
        write_manifest(whole.directory, json.loads(json.dumps(manifest, default=repr)))
        whole.restore()

    attempt()


def test_damaged_bytes_of_a_manifest_are_refused(whole: Saved) -> None:
    @quick
    @given(damaged(st.just(whole.files["manifest.json"])))
    def attempt(content: bytes) -> None:
        (whole.directory / "manifest.json").write_bytes(content)
        last = whole.restore()[-1]
        if content == whole.files["manifest.json"]:
            assert isinstance(last, DensePlaced)
        else:
            assert isinstance(last, NodeFailed) and last.error["code"] == "checkpoint_invalid"
            assert last.error["file"].endswith("manifest.json") and last.error["field"]

    attempt()
    (whole.directory / "manifest.json").write_bytes(b"[" * 100_000)
    assert isinstance(whole.restore()[-1], NodeFailed)


@st.composite
def forged(draw: st.DrawFn, content: bytes) -> tuple[bytes, dict[str, Any]]:
    """A file of rows whose footer says something odd under right checksums, and a manifest's entry that agrees."""
    offset, length, *_ = TRAILER.unpack(content[-TRAILER.size :])
    footer = content[offset : offset + length]
    stop = SCHEMA_LENGTH.size + SCHEMA_LENGTH.unpack(footer[: SCHEMA_LENGTH.size])[0]
    schema = json.loads(footer[SCHEMA_LENGTH.size : stop])
    index = np.frombuffer(footer, INDEX, offset=stop).copy()
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            name = draw(st.sampled_from(sorted(schema)))
            schema[name] = draw(ODD_JSON | st.sampled_from(["full", "delta", "fp16"]))
        else:
            name = draw(st.sampled_from(INDEX.names or ()))
            kind = INDEX[name]
            index[draw(st.integers(0, len(index) - 1))][name] = draw(INTEGERS) % (1 << 8 * kind.itemsize)
    told = json.dumps(schema, default=repr).encode()
    footer = SCHEMA_LENGTH.pack(len(told)) + told + index.tobytes()
    trailer = TRAILER.pack(offset, len(footer), zlib.crc32(footer), FORMAT_VERSION, MAGIC)
    whole = content[:offset] + footer + trailer
    counts = {name: int(sum(index[name].tolist())) for name in ("num_rows", "num_deleted")}
    return whole, {**json.loads(told), **counts, "bytes": len(whole)}


def test_a_footer_that_lies_is_refused_or_its_blocks_can_be_read(whole: Saved, tmp_path: Path) -> None:
    rows = sorted(name for name in whole.files if name.endswith(".rows"))
    path = tmp_path / "forged"

    @quick
    @given(st.sampled_from(rows).flatmap(lambda name: forged(whole.files[name])))
    def attempt(made: tuple[bytes, dict[str, Any]]) -> None:
        content, description = made
        path.write_bytes(content)
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        try:
            with TableReader(path, description) as reader:
                for shard in reader.entries:
                    reader.read(shard)
        except CheckpointError as error:
            encode(NodeFailed("s0", 1, "job", error.to_dict()))
        assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES + 2 * len(content)

    tracemalloc.start()
    try:
        attempt()
    finally:
        tracemalloc.stop()


def test_trailers_of_any_numbers_are_refused(whole: Saved, tmp_path: Path) -> None:
    name = next(name for name in whole.files if name.endswith(".rows"))
    path, content = tmp_path / "forged", whole.files[name]

    @quick
    @given(st.integers(0, 2**64 - 1) | st.integers(0, 2**17), st.integers(0, 2**64 - 1) | st.integers(0, 2**17))
    def attempt(offset: int, length: int) -> None:
        crc32 = zlib.crc32(content[offset : offset + length])
        path.write_bytes(
            content[: -TRAILER.size] + struct.pack("<QQII8s", offset, length, crc32, FORMAT_VERSION, MAGIC)
        )
        with pytest.raises(CheckpointError):
            TableReader(path, {"bytes": len(content)})

    attempt()
