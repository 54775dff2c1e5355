"""Servers without a process: their tables and dense block, trained, saved and restored."""

from __future__ import annotations

import json
import queue
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coordinator.routing import initial_route
from embedding_tier.dense_blocks import DenseBlock, DenseGradient
from embedding_tier.job_state import JobState
from embedding_tier.optimizer import Optimizer
from embedding_tier.restore import Checkpoint
from embedding_tier.shard import owned_by
from embedding_tier.snapshot import Snapshot
from geartrain.checkpoint_layout import BaseCheckpoint, write_manifest
from geartrain.types import Floats, Keys
from geartrain.wire.messages import Apply, DenseSegment, Route, SnapshotTaken, TableSpec, TakeSnapshot
from kernels.row_stores import WorkerRows

DIM = 3
NUM_DENSE = 10
SEGMENTS = [DenseSegment("w", (7,), 0, 7, "parameter"), DenseSegment("m", (3,), 7, 10, "average")]
UNIFORM = {"type": "uniform", "range": 0.5}
SPECS = [
    TableSpec("user/id", DIM, {"type": "adam"}, UNIFORM, 1),
    TableSpec("few", DIM, {"type": "sgd"}, {"type": "zero"}, 1),
    TableSpec("none", DIM, {"type": "adagrad"}, {"type": "zero"}, 1),
    TableSpec("halves", DIM, {"type": "rowwise_adam"}, UNIFORM, 1, "bf16", {"type": "count", "n": 2, "sketch_mb": 1}),
    TableSpec(
        "bounded", DIM, {"type": "ftrl"}, UNIFORM, 1, "fp16", expiry={"type": "unseen", "versions": 3}, max_rows=4096
    ),
]
MANY = np.concatenate([np.array([0, 2**64 - 1], np.uint64), np.arange(7, 900, 3, dtype=np.uint64) << np.uint64(40)])
KEYS: dict[str, Keys] = {
    "user/id": MANY,
    "few": np.array([4, 5, 6], dtype=np.uint64),
    "none": np.empty(0, dtype=np.uint64),
    "halves": MANY,
    "bounded": MANY,
}
PATIENT_S = 60.0
"""A wait that no passing test needs."""


def route_of(num_servers: int) -> Route:
    names = [f"s{number}" for number in range(num_servers)]
    return initial_route(names, names)


def decision(version: int, specs: Sequence[TableSpec] = SPECS) -> Apply:
    return Apply(1, version, [], 2.0, 1.0, 1.0, 0.1, {spec.name: 0.1 for spec in specs}, [])


class Server:
    """One server of a route, with a job open."""

    def __init__(self, number: int, num_servers: int, specs: Sequence[TableSpec] = SPECS) -> None:
        self.number, self.name, self.route, self.specs = number, f"s{number}", route_of(num_servers), specs
        self.job = JobState(1, specs, 0, 0)
        self.tables = self.job.tables
        bounds = [NUM_DENSE * part // num_servers for part in range(num_servers + 1)]
        optimizer = Optimizer.from_config({"type": "adam", "lr": 0.1})
        self.block = self.job.dense = DenseBlock(SEGMENTS, bounds[number], bounds[number + 1], optimizer)
        self.block.put(
            bounds[number],
            np.linspace(0, 1, NUM_DENSE, dtype=np.float32)[bounds[number] : bounds[-1]][
                : bounds[number + 1] - bounds[number]
            ],
        )

    def push(self, pushed: Mapping[str, tuple[Keys, Floats]], version: int) -> None:
        """Apply keys and gradients for some tables; each key that is ours was shown once, and clicked half a time."""
        nothing = np.empty(0, dtype=np.uint64), np.empty((0, self.job.row_dim), dtype=np.float32)
        given = [pushed.get(table.name, nothing) for table in self.tables]
        mine = [owned_by(self.route, self.number, keys) for keys, _ in given]
        keys = np.concatenate([keys[ours] for (keys, _), ours in zip(given, mine, strict=True)])
        grads = np.concatenate([grads[ours] for (_, grads), ours in zip(given, mine, strict=True)])
        ones = np.ones(len(keys), dtype=np.float32)
        workers = [WorkerRows(keys, grads, ones, ones * 0.5, np.array([ours.sum() for ours in mine]), 1.0)]
        told = decision(version, self.specs)
        with self.job.lock.writing():
            self.job.rows.apply(workers, self.job.rows.rules(told), told)

    def train(self, version: int, share: float = 1.0) -> None:
        """A window with a share of every table's keys, the same whatever the number of servers."""
        rng = np.random.default_rng(version)
        pushed = {}
        for table in self.tables:
            keys = KEYS.get(table.name, MANY)
            chosen = keys[rng.random(len(keys)) < share]
            pushed[table.name] = chosen, rng.normal(size=(len(chosen), DIM)).astype(np.float32)
        self.push(pushed, version)
        start, stop = self.block.start, self.block.stop
        gradient = np.arange(start, stop, dtype=np.float32) * version
        with self.job.lock.writing():
            summed = self.block.summed([DenseGradient([(start, gradient)], 1.0)])
            self.block.apply(summed, decision(version, self.specs))
            self.job.version = version

    def take(self, directory: Path, base: int | None = None) -> dict[str, Any]:
        """Write our part of a checkpoint, and wait for it."""
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        version = self.job.version
        Snapshot(self.job, "job", self.name, TakeSnapshot(1, version, version, str(directory), base)).begin(told.put)
        answer = told.get(timeout=PATIENT_S)
        assert isinstance(answer, SnapshotTaken), answer
        return answer.files

    def load(self, directory: Path, with_states: bool = True) -> None:
        checkpoint = Checkpoint(directory)
        checkpoint.expect_tables([spec.name for spec in self.specs])
        for table in self.tables:
            checkpoint.load_table(table, self.route, self.number, with_states)
        checkpoint.load_dense(self.block, NUM_DENSE, with_states)
        self.job.version = checkpoint.manifest.version


def cluster(num_servers: int, specs: Sequence[TableSpec] = SPECS) -> list[Server]:
    return [Server(number, num_servers, specs) for number in range(num_servers)]


def save(servers: Sequence[Server], directory: Path, base: Path | None = None) -> dict[str, Any]:
    """A checkpoint of all servers, a delta when there is a base; the manifest's files."""
    directory.mkdir(exist_ok=True)
    about = manifest(base) if base is not None else None
    files: dict[str, Any] = {}
    for server in servers:
        files |= server.take(directory, about["version"] if about else None)
    told = BaseCheckpoint(base.name, "job", 1, about["version"]) if base is not None and about is not None else None
    fields = {"job": "job", "term": 1, "version": servers[0].job.version, "files": files}
    write_manifest(directory, {**fields, "base": told})
    return files


def manifest(directory: Path) -> dict[str, Any]:
    fields = json.loads((directory / "manifest.json").read_text())
    assert isinstance(fields, dict)
    del fields["crc32"]
    return fields


def change_manifest(directory: Path, **changes: Any) -> None:
    write_manifest(directory, {**manifest(directory), **changes})


def contents(servers: Sequence[Server]) -> dict[str, list[Any]]:
    """Everything that training can see, whatever the number of servers: rows by key, admission counters, dense block.

    Looking at it counts as a full cut: deltas of before are over.
    """
    found: dict[str, list[Any]] = {}
    for number, spec in enumerate(servers[0].specs):
        cuts = []
        for server in servers:
            store = server.tables[number].store
            store.begin_cut(server.job.version, None)
            cuts.append(store.cut_shards(0, 1024))
            store.end_cut()
        order = np.argsort(np.concatenate([cut.rows.keys for cut in cuts]))
        parts = ("keys", "values", "states", "statistics", "last_versions")
        columns = [np.concatenate([getattr(cut.rows, part) for cut in cuts])[order].tolist() for part in parts]
        sketches = sum(cut.sketches for cut in cuts), sum(cut.sketch_totals for cut in cuts)
        found[spec.name] = [*columns, *(np.asarray(sketch).tobytes() for sketch in sketches)]
    found["dense"] = [np.concatenate([server.block.values() for server in servers]).tolist()]
    found["dense states"] = np.concatenate([server.block.states() for server in servers], axis=1).tolist()
    return found
