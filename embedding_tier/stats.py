"""Cheap counters and latencies of one table on one server."""

from __future__ import annotations

import math
import threading

_PER_OCTAVE = 4
_NUM_BUCKETS = 40 * _PER_OCTAVE  # up to 2**40 ns, 18 minutes


class LatencyHistogram:
    """Counts of durations in buckets that grow by a quarter octave: percentiles are at most 19% too high."""

    def __init__(self) -> None:
        self._counts = [0] * _NUM_BUCKETS
        self._total = 0

    def add(self, duration_ns: int) -> None:
        bucket = int(math.log2(duration_ns) * _PER_OCTAVE) if duration_ns > 1 else 0
        self._counts[min(bucket, _NUM_BUCKETS - 1)] += 1
        self._total += 1

    def percentile_ms(self, percent: float) -> float:
        """The upper edge of the bucket in which this percentile lies; 0 when nothing was counted."""
        rank = math.ceil(self._total * percent / 100)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return float(2 ** ((bucket + 1) / _PER_OCTAVE) / 1e6)
        return 0.0


class TableCounters:
    """What one table was asked for. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latency = LatencyHistogram()
        self.pull_requests = 0
        self.pull_rows = 0
        self.push_requests = 0
        self.push_rows = 0
        self.num_admitted = 0
        self.num_rejected = 0
        self.num_expired = 0
        self.num_evicted = 0

    def pulled(self, num_rows: int, duration_ns: int) -> None:
        with self._lock:
            self.pull_requests += 1
            self.pull_rows += num_rows
            self._latency.add(duration_ns)

    def pushed(self, num_rows: int) -> None:
        with self._lock:
            self.push_requests += 1
            self.push_rows += num_rows

    def applied(self, num_admitted: int, num_rejected: int, num_evicted: int) -> None:
        with self._lock:
            self.num_admitted += num_admitted
            self.num_rejected += num_rejected
            self.num_evicted += num_evicted

    def expired(self, num_rows: int) -> None:
        with self._lock:
            self.num_expired += num_rows

    def pull_percentiles_ms(self) -> tuple[float, float]:
        """The median and the 99th percentile of the time that the server took to read a request's rows of the table."""
        with self._lock:
            return self._latency.percentile_ms(50), self._latency.percentile_ms(99)
