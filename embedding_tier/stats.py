"""Cheap counters and latencies of the tables on one server.

Letters: T tables. A request counts for all its tables at once, so that many small tables cost no more than one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np

from geartrain.types import Indices

_PER_OCTAVE = 4
_NUM_BUCKETS = 40 * _PER_OCTAVE  # up to 2**40 ns, 18 minutes
_COUNTS = (
    *("pull_requests", "pull_rows", "push_requests", "push_rows"),
    *("num_admitted", "num_rejected", "num_evicted", "num_expired"),
)


class LatencyHistograms:
    """Of each table, counts of durations in buckets that grow by a quarter octave: percentiles are at most 19% too
    high."""

    def __init__(self, num_tables: int) -> None:
        self.counts = np.zeros((num_tables, _NUM_BUCKETS), dtype=np.int64)

    def add(self, tables: Indices, durations_ns: Indices) -> None:
        """One duration for each of some `tables`, all different."""
        octaves = np.log2(np.maximum(durations_ns, 1))
        buckets = np.minimum((octaves * _PER_OCTAVE).astype(np.int64), _NUM_BUCKETS - 1)
        self.counts[tables, buckets] += 1

    def percentile_ms(self, table: int, percent: float) -> float:
        """The upper edge of the bucket in which this percentile lies; 0 when nothing was counted."""
        seen = self.counts[table].cumsum()
        if seen[-1] == 0:
            return 0.0
        bucket = int(np.searchsorted(seen, math.ceil(int(seen[-1]) * percent / 100)))
        return float(2 ** ((bucket + 1) / _PER_OCTAVE) / 1e6)


class TableCounters:
    """What the tables were asked for: int64[T] each. Safe to use from any thread."""

    def __init__(self, num_tables: int) -> None:
        self._lock = threading.Lock()
        self._latency = LatencyHistograms(num_tables)
        self.pull_requests, self.pull_rows, self.push_requests, self.push_rows = _zeros(4, num_tables)
        self.num_admitted, self.num_rejected, self.num_evicted, self.num_expired = _zeros(4, num_tables)

    def pulled(self, num_rows: Indices, durations_ns: Indices) -> None:
        """A request for `num_rows` int64[T], which took that long for each table; tables without rows do not count."""
        tables = np.flatnonzero(num_rows)
        with self._lock:
            self.pull_requests[tables] += 1
            self.pull_rows += num_rows
            self._latency.add(tables, durations_ns[tables])

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
            self._latency.counts[mine] = before._latency.counts[theirs]
            for name in _COUNTS:
                getattr(self, name)[mine] = getattr(before, name)[theirs]

    def pull_percentiles_ms(self, table: int) -> tuple[float, float]:
        """The median and the 99th percentile of the time that the server took to read a request's rows of the table."""
        with self._lock:
            return self._latency.percentile_ms(table, 50), self._latency.percentile_ms(table, 99)


def _zeros(number: int, num_tables: int) -> list[Indices]:
    return [np.zeros(num_tables, dtype=np.int64) for _ in range(number)]
