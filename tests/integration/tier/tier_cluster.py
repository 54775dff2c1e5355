"""Embedding servers on real sockets in this process; the test plays the coordinator by handing them messages."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from coordinator.routing import initial_route
from embedding_tier.client import TierClient
from embedding_tier.control import ServerControl
from embedding_tier.server import TierServer
from geartrain.checkpoint_layout import BaseCheckpoint, write_manifest
from geartrain.types import Floats, Indices, Keys
from geartrain.wire.messages import (
    Apply,
    Contribution,
    DenseSegment,
    FromNode,
    OpenJob,
    PlaceDense,
    Route,
    SnapshotBegun,
    SnapshotTaken,
    TableSpec,
    TakeSnapshot,
    ToNode,
)
from geartrain.wire.zmq import RouterServer
from kernels.hashing import shard_of

TOKEN = "cluster-token"
JOB = "job-1"
DIM = 3
SEGMENTS = [DenseSegment("w", (10,), 0, 10, "parameter"), DenseSegment("m", (4,), 10, 14, "average")]
NUM_DENSE = 14
PATIENT_S = 60.0
"""A deadline that no passing test waits for."""


def specs(optimizer: str = "sgd", names: Sequence[str] = ("a", "b"), initializer: str = "uniform") -> list[TableSpec]:
    begin = {"type": initializer, **({"range": 0.5} if initializer == "uniform" else {})}
    return [TableSpec(name, DIM, {"type": optimizer, "lr": 0.1}, begin, 1) for name in names]


@dataclass
class Sums:
    """What a worker stages."""

    grads: Floats
    shows: Floats
    clicks: Floats
    dense_start: int
    dense: Floats


@dataclass
class TierCluster:
    """`num_servers` servers over `ipc` or `tcp`, with one job open. `broadcast` is the coordinator's voice."""

    directory: Path
    num_servers: int = 1
    transport: str = "ipc"
    tables: list[TableSpec] = field(default_factory=specs)
    pipeline_depth: int = 0
    restore: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        self.names = [f"s{number}" for number in range(self.num_servers)]
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.tiers = [TierServer(TOKEN, 100 + number) for number in range(self.num_servers)]
        self.routers = [
            RouterServer(
                self.context, f"ipc://{self.directory}/{name}" if self.transport == "ipc" else "tcp://127.0.0.1:*", t
            )
            for name, t in zip(self.names, self.tiers, strict=True)
        ]
        self.told: queue.SimpleQueue[FromNode] = queue.SimpleQueue()
        self.controls = [
            ServerControl(name, 100 + number, tier, self.told.put)
            for number, (name, tier) in enumerate(zip(self.names, self.tiers, strict=True))
        ]
        self.route: Route = initial_route(self.names, [router.address for router in self.routers])
        self.bounds = [NUM_DENSE * part // self.num_servers for part in range(self.num_servers + 1)]
        self.clients: list[TierClient] = []
        self.open()

    def broadcast(self, message: ToNode) -> list[FromNode | None]:
        return [control.handle(message) for control in self.controls]

    def begin_snapshot(self, directory: Path, version: int, base: BaseCheckpoint | None = None, term: int = 1) -> None:
        """Fix the state of all servers, which write it into the folder from now on."""
        directory.mkdir(exist_ok=True)
        message = TakeSnapshot(term, version, version, str(directory), base.version if base is not None else None)
        assert self.broadcast(message) == [SnapshotBegun(name, term, version) for name in self.names]

    def end_snapshot(self, directory: Path, version: int, base: BaseCheckpoint | None = None, term: int = 1) -> Path:
        """Wait for all servers, and write what the coordinator would."""
        files: dict[str, Any] = {}
        for _ in self.names:
            taken = self.told.get(timeout=PATIENT_S)
            assert isinstance(taken, SnapshotTaken) and (taken.term, taken.snapshot) == (term, version), taken
            files |= taken.files
        assert {path.name for path in directory.iterdir()} == set(files)
        manifest = {"job": JOB, "term": term, "version": version, "files": files, "base": base}
        write_manifest(directory, manifest)
        return directory

    def take_snapshot(self, directory: Path, version: int, base: BaseCheckpoint | None = None, term: int = 1) -> Path:
        self.begin_snapshot(directory, version, base, term)
        return self.end_snapshot(directory, version, base, term)

    def open(self, term: int = 1, put_by: str = "w0") -> None:
        config: dict[str, Any] = {"sync": {"pipeline_depth": self.pipeline_depth}}
        self.broadcast(OpenJob(term, JOB, config, {}, self.tables, self.route, self.version, self.restore))
        optimizer = {"type": "adam", "lr": 0.1}
        self.broadcast(PlaceDense(term, JOB, SEGMENTS, self.bounds, optimizer, "" if self.restore else put_by))

    def client(self, worker: str = "w0", **changes: Any) -> TierClient:
        fields: dict[str, Any] = {
            "route": self.route,
            "worker": worker,
            "incarnation": 1,
            "term": 1,
            "token": TOKEN,
            "row_dim": DIM,
            "deadline_s": PATIENT_S,
        }
        client = TierClient(**{**fields, **changes})
        client.place_dense(self.bounds)
        self.clients.append(client)
        return client

    def apply(
        self, version: int, contributions: Sequence[Contribution], divisor: float = 1.0, **changes: Any
    ) -> list[Any]:
        live = sorted({one.group for one in contributions} | {0})
        lrs = {spec.name: 0.1 for spec in self.tables}
        fields: dict[str, Any] = {
            "term": 1,
            "step_scale": 1.0,
            "most_windows": 1.0,
            "dense_lr": 0.1,
            "live_groups": live,
        }
        return self.broadcast(
            Apply(
                version=version,
                contributions=list(contributions),
                divisor=divisor,
                sparse_lr=lrs,
                **{**fields, **changes},
            )
        )

    def layout(self, keys_by_table: Sequence[Keys]) -> tuple[Keys, Indices]:
        """Unique keys by server, then table, and their counts, as workers plan them."""
        owners = np.asarray(self.route.owners)
        parts = [
            [keys[owners[shard_of(keys)] == server] for keys in keys_by_table] for server in range(self.num_servers)
        ]
        counts = np.array([[len(keys) for keys in row] for row in parts], dtype=np.int64)
        return np.concatenate([keys for row in parts for keys in row]).astype(np.uint64), counts

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for router in self.routers:
            router.close()
        for tier in self.tiers:
            tier.close()
        self.context.term()


def keys_of(*values: int) -> Keys:
    return np.array(values, dtype=np.uint64)


def sums_of(seed: int, num_rows: int, dense: tuple[int, int] = (0, NUM_DENSE)) -> Sums:
    """Random gradients, exact in sums of a few: multiples of 1/64."""
    rng = np.random.default_rng(seed)

    def values(*shape: int) -> Floats:
        return (rng.integers(-64, 64, shape) / 64).astype(np.float32)

    ones = np.ones(num_rows, dtype=np.float32)
    return Sums(values(num_rows, DIM), ones, ones * 0.5, dense[0], values(dense[1] - dense[0]))


def pulled(client: TierClient, keys: Keys, counts: Indices, version: int) -> Floats:
    out = np.empty((len(keys), DIM), dtype=np.float32)
    client.pull(keys, counts, version, out)
    return out


def dense_of(client: TierClient, version: int) -> Floats:
    out = np.empty(NUM_DENSE, dtype=np.float32)
    client.pull_dense(version, out)
    return out
