"""From a grant to a step that can be computed: its planned batch, the rows of its keys, the dense parameters.

One background thread fetches the granted steps in their order. A pull asks for the granted version or a newer one and
is parked by the servers until they have it, so fetching may begin as soon as the grant is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from dense_workers.prefetch import PlannedBatch, Prefetcher
from embedding_tier.client import TierClient
from geartrain.types import Floats, Interval
from geartrain.wire.messages import Grant, GrantedInterval


@dataclass(frozen=True, slots=True)
class ReadyStep:
    """A granted step with all it needs. `dense` is None where another member of the group pulls it.

    `fetch_s` is what fetching took, without the time that servers let it wait for the version; all was there at
    `fetched_s` of `time.perf_counter`.
    """

    grant: Grant
    planned: PlannedBatch
    rows: Floats
    dense: Floats | None
    version: int
    fetch_s: float
    fetched_s: float


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Fetching ended with an error; no later step of this feed is delivered."""

    grant: Grant
    error: Exception


def share_of(granted: GrantedInterval, rank: int) -> Interval:
    """The part of a granted interval that the member of this rank computes; it may be empty."""
    return Interval(granted.pass_index, granted.cuts[rank], granted.cuts[rank + 1])


class StepFeed:
    """Fetches granted steps in order and hands each to `deliver` from its own thread."""

    def __init__(
        self,
        prefetcher: Prefetcher,
        client: TierClient,
        rank: int,
        num_params: int,
        deliver: Callable[[ReadyStep | FetchFailed], None],
    ) -> None:
        """`num_params` is the length of the flat dense vector; the member of rank 0 pulls it for its group."""
        self._prefetcher = prefetcher
        self._client = client
        self._rank = rank
        self._num_params = num_params
        self._deliver = deliver
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fetch")
        self._last_fetched = -1
        self._failed = threading.Event()

    @property
    def last_fetched(self) -> int:
        """The highest step whose pull was answered, -1 before the first. Readable from any thread."""
        return self._last_fetched

    def fetch(self, grant: Grant) -> None:
        """Queue a granted step; the intervals behind it are announced to the prefetcher."""
        own = share_of(grant.interval, self._rank)
        planned = self._prefetcher.take(own)
        self._prefetcher.announce(share_of(ahead, self._rank) for ahead in grant.ahead)
        self._pool.submit(self._fetch, grant, planned.result)

    def close(self) -> None:
        self._failed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _fetch(self, grant: Grant, planned_result: Callable[[], PlannedBatch]) -> None:
        if self._failed.is_set():
            return
        try:
            ready = self._pull(grant, planned_result)
        except Exception as error:  # handed to the main thread, which reports it
            self._failed.set()
            self._deliver(FetchFailed(grant, error))
            return
        self._last_fetched = grant.step
        self._deliver(ready)

    def _pull(self, grant: Grant, planned_result: Callable[[], PlannedBatch]) -> ReadyStep:
        begun_s, parked_s = time.perf_counter(), self._client.parked_s
        planned = planned_result()
        plan = planned.plan
        rows = np.empty((len(plan.unique_keys), self._client.row_dim), dtype=np.float32)
        asked = self._client.begin_pull(plan.unique_keys, plan.counts, grant.version)
        dense, dense_version = None, None
        if self._rank == 0:  # while the servers look up the rows
            dense = np.empty(self._num_params, dtype=np.float32)
            dense_version = self._client.pull_dense(grant.version, dense)
        version = self._client.finish_pull(asked, rows)
        if dense_version is not None:
            version = min(version, dense_version)
        fetched_s = time.perf_counter()
        fetch_s = fetched_s - begun_s - (self._client.parked_s - parked_s)
        return ReadyStep(grant, planned, rows, dense, version, fetch_s, fetched_s)
