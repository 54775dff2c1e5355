"""Cheap counters and latencies of the tables on one server.

Letters: T tables. A request counts for all its tables at once, so that many small tables cost no more than one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from geartrain.types import Indices

PERIOD_S = 60.0
"""Percentiles are of the period of this length that is under way and of the one before: of one to two minutes."""

_PER_OCTAVE = 4
_NUM_BUCKETS = 40 * _PER_OCTAVE  # up to 2**40 ns, 18 minutes
_COUNTS = (
    *("pull_requests", "pull_rows", "push_requests", "push_rows"),
    *("num_admitted", "num_rejected", "num_evicted", "num_expired"),
)


class LatencyHistograms:
    """Of each table, how long requests of this period and of the one before took. The caller holds a lock.

    Buckets grow by a quarter octave: percentiles are at most 19% too high. A stall shows within its period whatever
    there was before, and is forgotten after one to two periods.
    """

    def __init__(self, num_tables: int) -> None:
        self._counts = np.zeros((2, _NUM_BUCKETS, num_tables), dtype=np.int64)  # this period, and the one before
        self._period = 0

    def add(self, took_part: Indices, duration_s: float, now_s: float) -> None:
        """A request that ended at `now_s`; `took_part` int64[T] is 1 for each of its tables and 0 for the others."""
        self._turn(now_s)
        octaves = math.log2(max(duration_s * 1e9, 1.0))
        self._counts[0, min(int(octaves * _PER_OCTAVE), _NUM_BUCKETS - 1)] += took_part

    def percentiles_ms(self, percent: float, now_s: float) -> list[float]:
        """Of each table, the upper edge of the bucket in which this percentile lies; 0 when nothing was counted."""
        self._turn(now_s)
        seen = self._counts.sum(axis=0).cumsum(axis=0)
        buckets = (seen < np.ceil(seen[-1] * (percent / 100))).sum(axis=0)
        edges_ms: list[float] = np.where(seen[-1] > 0, 2 ** ((buckets + 1) / _PER_OCTAVE) / 1e6, 0.0).tolist()
        return edges_ms

    def go_on(self, before: LatencyHistograms, tables: Sequence[int], tables_before: Sequence[int]) -> None:
        """Take over what was counted `before`, by the same clock, for some of its tables."""
        self._counts[:, :, tables] = before._counts[:, :, tables_before]
        self._period = before._period

    def _turn(self, now_s: float) -> None:
        period = int(now_s // PERIOD_S)
        # A request that ended a moment before the turn, and comes after it, counts in the new period.
        if period > self._period:
            self._counts[1] = self._counts[0] if period == self._period + 1 else 0
            self._counts[0] = 0
            self._period = period


class TableCounters:
    """What the tables were asked for: int64[T] each. Safe to use from any thread."""

    def __init__(self, num_tables: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` tells which latencies are recent."""
        self._lock = threading.Lock()
        self._clock = clock
        self._latency = LatencyHistograms(num_tables)
        self.pull_requests, self.pull_rows, self.push_requests, self.push_rows = _zeros(4, num_tables)
        self.num_admitted, self.num_rejected, self.num_evicted, self.num_expired = _zeros(4, num_tables)

    def pulled(self, num_rows: Indices, duration_s: float) -> None:
        """A request for `num_rows` int64[T] that took so long; it says nothing of tables without rows in it."""
        took_part = (num_rows > 0).astype(np.int64)
        with self._lock:
            self.pull_requests += took_part
            self.pull_rows += num_rows
            self._latency.add(took_part, duration_s, self._clock())

    def pushed(self, num_rows: Indices) -> None:
        """A push of `num_rows` int64[T]; tables without rows do not count."""
        with self._lock:
            self.push_requests += num_rows > 0
            self.push_rows += num_rows

    def applied(self, lives: Indices) -> None:
        """A window that admitted, rejected and evicted so many keys: int64[T, 3]."""
        with self._lock:
            self.num_admitted += lives[:, 0]
            self.num_rejected += lives[:, 1]
            self.num_evicted += lives[:, 2]

    def expired(self, table: int, num_rows: int) -> None:
        """A sweep of one table that removed `num_rows`."""
        with self._lock:
            self.num_expired[table] += num_rows

    def go_on(self, before: TableCounters, tables: Sequence[int], tables_before: Sequence[int]) -> None:
        """Take over what was counted `before` for some of its tables."""
        mine, theirs = list(tables), list(tables_before)
        with self._lock, before._lock:
            self._latency.go_on(before._latency, mine, theirs)
            for name in _COUNTS:
                getattr(self, name)[mine] = getattr(before, name)[theirs]

    def pull_percentiles_ms(self) -> list[tuple[float, float]]:
        """Of each table, the median and the 99th percentile of what pulls took that asked for its rows lately."""
        with self._lock:
            now_s = self._clock()
            medians = self._latency.percentiles_ms(50, now_s)
            return list(zip(medians, self._latency.percentiles_ms(99, now_s), strict=True))


def _zeros(number: int, num_tables: int) -> list[Indices]:
    return [np.zeros(num_tables, dtype=np.int64) for _ in range(number)]
