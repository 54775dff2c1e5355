"""Over real sockets: pulls that a server cannot answer for a while show in its percentiles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from tier_cluster import DIM, TierCluster, keys_of

STALL_S = 30.0
"""By a clock that is put forward: nothing waits for it."""
NUM_PULLS = 3
"""One more than a server has threads: the last one waits in the queue."""


def test_a_stall_shows_for_those_in_threads_and_in_the_queue(
    start_tier: Callable[..., TierCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = start_tier()
    server, router = tier.tiers[0], tier.routers[0]
    job = server.job
    assert job is not None
    ahead_s = 0.0
    monkeypatch.setattr(server, "_clock", lambda: time.monotonic() + ahead_s)
    client = tier.client()
    keys, counts = tier.layout([keys_of(1, 2), keys_of()])
    pause = threading.Event()
    with job.lock.writing():
        handles = [client.begin_pull(keys, counts, 0) for _ in range(NUM_PULLS)]
        while router.queue_length != 1:
            pause.wait(0.001)
        ahead_s = STALL_S
    for handle in handles:
        assert client.finish_pull(handle, np.empty((2, DIM), dtype=np.float32)) == 0
    stats = server.stats(0)
    assert stats is not None
    table = stats.tables["a"]
    assert table.pull_requests == NUM_PULLS
    assert STALL_S * 1000 <= table.pull_p50_ms <= table.pull_p99_ms
