"""A checkpoint restores every row on any number of servers, and a damaged one is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.routing import initial_route
from embedding_tier.dense_blocks import DenseBlock, DenseGradient
from embedding_tier.optimizer import Optimizer
from embedding_tier.restore import Checkpoint
from embedding_tier.shard import owned_by
from embedding_tier.snapshot import write_dense, write_table
from embedding_tier.table import RowGradients, Table
from geartrain.errors import CheckpointError
from geartrain.types import Keys
from geartrain.wire.messages import Apply, DenseSegment, Route, TableSpec

SEGMENTS = [DenseSegment("w", (7,), 0, 7, "parameter"), DenseSegment("m", (3,), 7, 10, "average")]
SPECS = [
    TableSpec("user/id", 3, {"type": "adam", "lr": 0.1}, {"type": "uniform", "range": 0.5}, 1),
    TableSpec("few", 3, {"type": "sgd", "lr": 0.1}, {"type": "zero"}, 1),
    TableSpec("none", 3, {"type": "adagrad", "lr": 0.1}, {"type": "zero"}, 1),
]
KEYS = {
    "user/id": np.concatenate([np.array([0, 2**64 - 1], np.uint64), np.arange(7, 900, 3, dtype=np.uint64) << 40]),
    "few": np.array([4, 5, 6], dtype=np.uint64),
    "none": np.empty(0, dtype=np.uint64),
}


def route_of(num_servers: int) -> Route:
    names = [f"s{number}" for number in range(num_servers)]
    return initial_route(names, names)


def decision(version: int) -> Apply:
    return Apply(1, version, [], 2.0, 1.0, 0.1, {spec.name: 0.1 for spec in SPECS}, [])


def push(table: Table, keys: Keys, version: int) -> None:
    rng = np.random.default_rng(int(version))
    every = rng.normal(size=(len(KEYS[table.name]), 3)).astype(np.float32)
    mine = every[np.isin(KEYS[table.name], keys)]
    ones = np.ones(len(keys), dtype=np.float32)
    table.apply([RowGradients(keys, mine, ones, ones * 0.5, 1.0)] if len(keys) else [], decision(version))


class Server:
    """Tables and dense block of one server of a route, without any process."""

    def __init__(self, number: int, num_servers: int) -> None:
        self.number, self.route = number, route_of(num_servers)
        self.tables = [Table(spec) for spec in SPECS]
        bounds = [10 * part // num_servers for part in range(num_servers + 1)]
        optimizer = Optimizer.from_config({"type": "adam", "lr": 0.1})
        self.block = DenseBlock(SEGMENTS, bounds[number], bounds[number + 1], optimizer)

    def mine(self, table: Table) -> Keys:
        keys = KEYS[table.name]
        return keys[owned_by(self.route, self.number, keys)]

    def train(self, version: int) -> None:
        for table in self.tables:
            push(table, self.mine(table), version)
        start, stop = self.block.start, self.block.stop
        gradient = np.arange(start, stop, dtype=np.float32) * version
        self.block.apply(self.block.summed([DenseGradient([(start, gradient)], 1.0)]), decision(version))

    def save(self, directory: Path) -> dict[str, Any]:
        files: dict[str, Any] = {}
        for table in self.tables:
            files |= write_table(directory, table, f"s{self.number}")
        return files | write_dense(directory, self.block, f"s{self.number}")

    def load(self, directory: Path, with_states: bool = True) -> None:
        checkpoint = Checkpoint(directory)
        checkpoint.expect_tables([spec.name for spec in SPECS])
        for table in self.tables:
            checkpoint.load_table(table, self.route, self.number, with_states)
        checkpoint.load_dense(self.block, 10, with_states)


def cluster(num_servers: int) -> list[Server]:
    return [Server(number, num_servers) for number in range(num_servers)]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    files: dict[str, Any] = {}
    for server in cluster(3):
        server.block.put(
            server.block.start, np.linspace(0, 1, 10, dtype=np.float32)[server.block.start :][: _size(server)]
        )
        server.train(1)
        server.train(2)
        files |= server.save(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "files": files}))
    return tmp_path


def _size(server: Server) -> int:
    return server.block.stop - server.block.start


def contents(servers: list[Server]) -> dict[str, list[Any]]:
    """Everything that training can see, sorted by key, whatever the number of servers."""
    found: dict[str, list[Any]] = {}
    for number, spec in enumerate(SPECS):
        records = [server.tables[number].store.export() for server in servers]
        keys = np.concatenate([one.keys for one in records])
        order = np.argsort(keys)
        parts = ("values", "states", "statistics", "last_versions")
        columns = [np.concatenate([getattr(one, part) for one in records])[order].tolist() for part in parts]
        found[spec.name] = [keys[order].tolist(), *columns]
    found["dense"] = [np.concatenate([server.block.values() for server in servers]).tolist()]
    found["dense states"] = np.concatenate([server.block.states() for server in servers], axis=1).tolist()
    return found


@pytest.mark.parametrize("num_servers", [1, 2, 5, 7])
def test_three_servers_restore_on_any_number_and_train_on_alike(checkpoint: Path, num_servers: int) -> None:
    same, other = cluster(3), cluster(num_servers)
    for server in [*same, *other]:
        server.load(checkpoint)
    assert contents(other) == contents(same)
    assert len(contents(same)["user/id"][0]) == len(KEYS["user/id"])
    assert all(row != contents(same)["user/id"][1][0] for row in contents(same)["user/id"][1][1:])
    for server in [*same, *other]:
        server.train(3)
    assert contents(other) == contents(same)


def test_values_alone_start_states_anew(checkpoint: Path) -> None:
    (full,), (bare,) = cluster(1), cluster(1)
    full.load(checkpoint)
    bare.load(checkpoint, with_states=False)
    for name in ("user/id", "few"):
        assert contents([bare])[name][:2] == contents([full])[name][:2]
    assert not np.any(contents([bare])["user/id"][2]) and np.any(contents([full])["user/id"][2])
    assert not np.any(contents([bare])["user/id"][3]) and not np.any(contents([bare])["user/id"][4])
    assert contents([bare])["dense"] == contents([full])["dense"]
    assert not np.any(contents([bare])["dense states"])


def test_loading_in_chunks_is_the_same(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, chunked = cluster(2), cluster(2)
    for server in whole:
        server.load(checkpoint)
    monkeypatch.setattr("embedding_tier.restore.CHUNK_ROWS", 7)
    for server in chunked:
        server.load(checkpoint)
    assert contents(chunked) == contents(whole)


def refused(directory: Path, with_states: bool = True) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        cluster(1)[0].load(directory, with_states)
    return caught.value


def all_files() -> list[str]:
    tables = [f"table-{name}.s1.{part}.npy" for name in ("user%2Fid", "few", "none")
              for part in ("keys", "values", "states", "statistics", "last_versions")]  # fmt: skip
    return [*tables, "dense.s1.npy", "dense_states.s1.npy"]


@pytest.mark.parametrize("name", all_files())
def test_every_file_is_needed_whole_and_unchanged(checkpoint: Path, name: str) -> None:
    path = checkpoint / name
    data = path.read_bytes()

    def flipped(position: int) -> bytes:
        return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]

    for damaged in (data[:-1], data + b"\x00", b"", data[:20], flipped(len(data) - 1), flipped(9), flipped(60)):
        path.write_bytes(damaged)
        error = refused(checkpoint)
        assert error.facts["file"] == str(path)
        assert error.facts["field"]
    path.unlink()
    assert refused(checkpoint).facts["file"] == str(path)


def change_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest["files"])
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", all_files())
def test_a_part_that_the_manifest_lacks_is_named(checkpoint: Path, name: str) -> None:
    change_manifest(checkpoint, lambda files: files.pop(name))
    assert "of server s1 is missing" in refused(checkpoint).message


def test_without_its_sparse_part_nothing_loads(checkpoint: Path) -> None:
    def drop_tables(files: dict[str, Any]) -> None:
        for name in [name for name in files if name.startswith("table-")]:
            del files[name]

    change_manifest(checkpoint, drop_tables)
    assert "only in the job" in refused(checkpoint).message


def test_without_a_writer_the_dense_vector_has_a_gap(checkpoint: Path) -> None:
    def drop_server(files: dict[str, Any]) -> None:
        for name in [name for name in files if ".s1." in name]:
            del files[name]

    change_manifest(checkpoint, drop_server)
    assert "the dense blocks hold 3 values, the model has 10" in refused(checkpoint).message


def test_ragged_parts_are_refused_by_name(checkpoint: Path) -> None:
    server = cluster(3)[1]
    server.tables[0] = Table(SPECS[0])
    push(server.tables[0], server.mine(server.tables[0]), 1)
    more = checkpoint / "more"
    more.mkdir()
    kept = "table-user%2Fid.s1.states.npy"
    server.block.put(server.block.start, np.zeros(_size(server), dtype=np.float32))
    records = server.save(more)
    (checkpoint / kept).write_bytes((more / kept).read_bytes()[:-12])
    change_manifest(
        checkpoint, lambda files: files.update({kept: {**records[kept], "bytes": records[kept]["bytes"] - 12}})
    )
    assert kept in refused(checkpoint).message
    change_manifest(checkpoint, lambda files: files[kept].update(num_rows=1))
    assert "num_rows" in refused(checkpoint).facts["field"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"optimizer": "adagrad"}, "optimizer"),
        ({"dim": 4}, "dim"),
        ({"num_rows": -1}, "num_rows"),
        ({"crc32": 0}, "crc32"),
    ],
)
def test_another_model_is_refused(checkpoint: Path, change: dict[str, Any], field: str) -> None:
    for part in ("keys", "states"):
        change_manifest(checkpoint, lambda files, part=part: files[f"table-few.s0.{part}.npy"].update(change))
    assert field in refused(checkpoint).facts["field"]


def test_a_table_twice_or_unknown_is_refused(checkpoint: Path) -> None:
    def twice(files: dict[str, Any]) -> None:
        for name in [name for name in files if ".s0." in name]:
            files[name] = {**files[name.replace(".s0.", ".s1.")], "server": "s0"}

    change_manifest(checkpoint, twice)
    for name in [path for path in checkpoint.iterdir() if ".s0." in path.name]:
        name.write_bytes((checkpoint / name.name.replace(".s0.", ".s1.")).read_bytes())
    assert "table user/id" in refused(checkpoint).message
    with pytest.raises(CheckpointError, match="extra is only in the job"):
        Checkpoint(checkpoint).expect_tables([*KEYS, "extra"])
    with pytest.raises(CheckpointError, match="few is only in the checkpoint"):
        Checkpoint(checkpoint).expect_tables(["none", "user/id"])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": {"a": 1}}', '{"files": {"a": {"part": "keys"}}}'])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match="not a manifest"):
        Checkpoint(tmp_path)
    with pytest.raises(CheckpointError):
        Checkpoint(tmp_path / "nowhere")


def test_a_file_name_cannot_leave_the_directory(checkpoint: Path) -> None:
    name = "table-few.s0.keys.npy"
    change_manifest(checkpoint, lambda files: files.update({f"../{checkpoint.name}/{name}": files.pop(name)}))
    assert "missing" in refused(checkpoint).message


def test_nothing_is_overwritten(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        cluster(3)[0].save(checkpoint)
