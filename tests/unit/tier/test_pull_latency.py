"""What pulls take as the stats tell it: with the queue and the wait for the lock, without the wait for a version."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from embedding_tier.job_state import JobState
from embedding_tier.server import TierServer
from geartrain.wire.framing import decode_reply_header, encode
from geartrain.wire.messages import Apply, Origin, PullRows, Rows, TableSpec, TableStats

KEYS = np.array([3, 9], dtype=np.uint64)
SPECS = [TableSpec(name, 2, {"type": "sgd"}, {"type": "uniform", "range": 0.5}, 1) for name in ("a", "b")]
BUCKET = 2**0.25 * 1.001
"""Percentiles are the upper edges of buckets."""


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class PullRequest:
    """A pull of two rows of table a at the server's side; put back, it waits in the queue."""

    version: int
    arrived_s: float
    sequence: int = 1
    answers: list[bytes] = field(default_factory=list)
    times_requeued: int = 0

    @property
    def frames(self) -> list[bytes]:
        origin = Origin("t", 1, 1, "w0", 1, self.sequence, 60.0)
        return [encode(PullRows(origin, self.version, [len(KEYS), 0])), KEYS.tobytes()]

    def reply(self, frames: Sequence[Any]) -> None:
        self.answers.append(bytes(memoryview(frames[0])))

    def requeue(self) -> None:
        self.times_requeued += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> TierServer:
    server = TierServer("t", 1, clock)
    server.open(JobState(term=1, tables=SPECS, version=0, pipeline_depth=0), route_epoch=1)
    return server


def apply(server: TierServer, version: int) -> None:
    server.decided(Apply(1, version, [], 1.0, 1.0, 1.0, 0.1, {"a": 0.1, "b": 0.1}, [0]))


def told(server: TierServer) -> dict[str, TableStats]:
    stats = server.stats(0)
    assert stats is not None
    return stats.tables


def answered(*requests: PullRequest) -> None:
    for request in requests:
        (answer,) = request.answers
        assert isinstance(decode_reply_header([answer]), Rows)


def test_pulls_that_wait_for_the_lock_show_it(server: TierServer, clock: Clock) -> None:
    job = server.job
    assert job is not None
    requests = [PullRequest(0, 100.0, sequence) for sequence in range(2)]
    threads = [threading.Thread(target=server.handle, args=(request, 100.0)) for request in requests]
    with job.lock.writing():
        for thread in threads:
            thread.start()
        clock.now_s = 100.45  # no pull can be over before this
    for thread in threads:
        thread.join()
    answered(*requests)
    table = told(server)["a"]
    assert 450 * 0.999 <= table.pull_p50_ms <= table.pull_p99_ms <= 450 * BUCKET
    assert (table.pull_requests, table.pull_rows) == (2, 4)


def test_the_wait_in_the_queue_counts(server: TierServer, clock: Clock) -> None:
    request = PullRequest(0, 99.7)
    server.handle(request, 100.0)
    answered(request)
    assert 300 * 0.999 <= told(server)["a"].pull_p99_ms <= 300 * BUCKET


def test_the_wait_for_a_version_is_the_clients(server: TierServer, clock: Clock) -> None:
    request = PullRequest(1, 100.0)
    server.handle(request, 100.0)
    clock.now_s = 105.0
    apply(server, 1)
    assert (request.times_requeued, request.answers) == (1, [])
    assert told(server)["a"].pull_requests == 0
    clock.now_s = 105.25
    server.handle(request, 105.25)
    answered(request)
    assert 250 * 0.999 <= told(server)["a"].pull_p99_ms <= 250 * BUCKET, "since the version was there"


def test_tables_that_a_request_does_not_name_are_not_counted(server: TierServer, clock: Clock) -> None:
    server.handle(PullRequest(0, 100.0), 100.0)
    assert (told(server)["b"].pull_requests, told(server)["b"].pull_p99_ms) == (0, 0.0)


def test_a_request_that_is_refused_is_not_counted(server: TierServer, clock: Clock) -> None:
    late = PullRequest(7, 0.0)
    server.handle(late, 100.0)
    assert len(late.answers) == 1 and not isinstance(decode_reply_header(late.answers), Rows)
    assert told(server)["a"].pull_requests == 0
