"""A small embedding server without sockets, and requests for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from embedding_tier.control import ServerControl
from embedding_tier.server import TierServer
from geartrain.types import NUM_SHARDS
from geartrain.wire.framing import Frame, decode_reply_header, encode
from geartrain.wire.messages import (
    Dense,
    DensePlaced,
    Done,
    FromNode,
    FromServer,
    JobOpened,
    OpenJob,
    Origin,
    PlaceDense,
    PullDense,
    PullRows,
    PutDense,
    Route,
    Rows,
    Stage,
    TableSpec,
)
from geartrain.wire.messages import DenseSegment as Segment
from geartrain.wire.transport import Buffers

TOKEN, TERM, EPOCH, INCARNATION, DIM = "token", 3, 2, 77, 2
DENSE_SIZE = 5
TABLES = [
    TableSpec("a", DIM, {"type": "adagrad", "lr": 0.1}, {"type": "uniform", "range": 0.5}, 1),
    TableSpec("b", DIM, {"type": "sgd", "lr": 0.1}, {"type": "normal", "std": 0.1}, 1),
]
ROUTE = Route(EPOCH, ["s0"], ["ipc://s0"], [0] * NUM_SHARDS)
DENSE = PlaceDense(
    TERM, "job", [Segment("d", (DENSE_SIZE,), 0, DENSE_SIZE, "parameter")], [0, DENSE_SIZE], {"type": "adam"}, "w0"
)
KEYS = np.array([0, 1, 2**64 - 1, 5], dtype=np.uint64)


@dataclass
class Received:
    """A request as the transport hands it over; keeps what the server answers."""

    frames: Sequence[Frame]
    arrived_s: float = 0.0
    answers: list[Buffers] = field(default_factory=list)
    times_requeued: int = 0

    def reply(self, frames: Buffers) -> None:
        self.answers.append([bytes(memoryview(frame).cast("B")) if len(frame) else b"" for frame in frames])

    def requeue(self) -> None:
        self.times_requeued += 1

    def header(self) -> FromServer:
        """The header of the one answer."""
        (answer,) = self.answers
        return decode_reply_header(answer)


def opening(term: int = TERM, job: str = "job", version: int = 0, tables: Sequence[TableSpec] = TABLES) -> OpenJob:
    return OpenJob(term, job, {}, {}, list(tables), ROUTE, version)


def serving(
    version: int = 0, tell: Callable[[FromNode], None] = lambda told: None, tables: Sequence[TableSpec] = TABLES
) -> tuple[ServerControl, TierServer]:
    """A server with an open job of two tables and a dense block."""
    tier = TierServer(TOKEN, INCARNATION)
    control = ServerControl("s0", INCARNATION, tier, tell)
    assert isinstance(control.handle(opening(version=version, tables=tables)), JobOpened)
    assert isinstance(control.handle(DENSE), DensePlaced)
    assert isinstance(ask(tier, PutDense(_origin(), 0, DENSE_SIZE), bytes(4 * DENSE_SIZE)).header(), Done)
    return control, tier


def ask(tier: TierServer, header: msgspec.Struct, *buffers: Any) -> Received:
    request = Received([encode(header), *buffers])
    tier.handle(request, 0.0)
    return request


def good_pull(tier: TierServer, term: int = TERM) -> bytes:
    """The rows of some keys of both tables."""
    request = ask(tier, PullRows(_origin(term), 0, [3, 1]), KEYS.tobytes())
    assert isinstance(request.header(), Rows), request.header()
    rows = bytes(request.answers[0][1])
    assert len(rows) == KEYS.size * DIM * 4
    return rows


def dense_values(tier: TierServer) -> bytes:
    """The dense block."""
    request = ask(tier, PullDense(_origin(), 0))
    assert isinstance(request.header(), Dense), request.header()
    return bytes(request.answers[0][1])


def stage(tier: TierServer, worker: str) -> Received:
    """Step 0 of group 0: a gradient for each of the keys that `good_pull` reads."""
    ones = np.ones(DIM * KEYS.size, dtype=np.float32)
    sums = [KEYS, ones, ones[: KEYS.size], ones[: KEYS.size], ones[:DENSE_SIZE]]
    return ask(tier, Stage(_origin(worker=worker), 0, 0, [3, 1], 0, DENSE_SIZE), *(array.tobytes() for array in sums))


def _origin(term: int = TERM, worker: str = "a good worker") -> Origin:
    return Origin(TOKEN, term, EPOCH, worker, 1, 9, 10.0)
