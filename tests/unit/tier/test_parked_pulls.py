"""Pulls that waited for their version say how long; those that found it say nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from embedding_tier.job_state import JobState
from embedding_tier.server import TierServer
from geartrain.wire.framing import decode_reply_header, encode
from geartrain.wire.messages import Apply, Origin, PullRows, Rows, TableSpec

KEYS = np.array([3, 9], dtype=np.uint64)


@dataclass
class PullRequest:
    """A pull at the server's side; put back, it is handled again at once."""

    server: TierServer
    version: int
    arrived_s: float
    sequence: int = 1
    now_s: float = 0.0
    answers: list[bytes] = field(default_factory=list)

    @property
    def frames(self) -> list[bytes]:
        origin = Origin("t", 1, 1, "w0", 1, self.sequence, 60.0)
        return [encode(PullRows(origin, self.version, [len(KEYS)])), KEYS.tobytes()]

    def ask(self) -> None:
        self.server.handle(self, self.arrived_s)

    def reply(self, frames: Sequence[Any]) -> None:
        self.answers.append(bytes(memoryview(frames[0])))

    def requeue(self) -> None:
        self.server.handle(self, self.now_s)

    def parked_ms(self) -> float:
        (answer,) = self.answers
        header = decode_reply_header([answer])
        assert isinstance(header, Rows), header
        return header.parked_ms


class Times:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def server(times: Times) -> TierServer:
    server = TierServer("t", 1, times)
    spec = TableSpec("a", 2, {"type": "sgd"}, {"type": "uniform", "range": 0.5}, 1)
    server.open(JobState(term=1, tables=[spec], version=0, pipeline_depth=0), route_epoch=1)
    return server


def apply(server: TierServer, version: int) -> None:
    server.decided(Apply(1, version, [], 1.0, 1.0, 1.0, 0.1, {"a": 0.1}, [0]))


def test_a_pull_says_how_long_it_was_parked(server: TierServer, times: Times) -> None:
    early, late = PullRequest(server, 1, 2.0), PullRequest(server, 1, 4.5, sequence=2)
    early.ask()
    late.ask()
    assert early.answers == late.answers == []
    early.now_s = late.now_s = 5.75
    times.now_s = 5.5
    apply(server, 1)
    assert early.parked_ms() == pytest.approx(3500), "what it waited for a thread afterwards is no parking"
    assert late.parked_ms() == pytest.approx(1000)


def test_a_pull_that_finds_its_version_was_not_parked(server: TierServer, times: Times) -> None:
    first = PullRequest(server, 0, 1.0)
    first.ask()
    times.now_s = 5.0
    apply(server, 1)
    second = PullRequest(server, 1, 6.0, sequence=2)
    second.ask()
    assert first.parked_ms() == second.parked_ms() == 0.0


def test_a_job_does_not_inherit_the_times_of_another(server: TierServer, times: Times) -> None:
    times.now_s = 5.0
    apply(server, 1)
    spec = TableSpec("a", 2, {"type": "sgd"}, {"type": "uniform", "range": 0.5}, 1)
    server.open(JobState(term=1, tables=[spec], version=1, pipeline_depth=0), route_epoch=1)
    pull = PullRequest(server, 1, 3.0)
    pull.ask()
    assert pull.parked_ms() == 0.0
