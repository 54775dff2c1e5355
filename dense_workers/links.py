"""A worker's way to the others, as fast as its card's description says.

How transfers are timed, which `coordinator`'s simulator must know too. Each direction passes one byte after the other
at its bandwidth; a transfer begins when the one before it in that direction has ended, and unused time is lost (a token
bucket that holds nothing). Both directions run at the same time.

- A request to a server goes up before it is sent, its answer comes down after it was received.
- The first member's n bytes for the others go up once for each of them before they are sent, and come down at each
  other after they came.
- An all-reduce of n bytes over k members takes 2 (k - 1) / k * n bytes in both directions at once, as a ring does,
  after the sum is there.
"""

from __future__ import annotations

import threading

from dense_workers.waiting import Clock


class Link:
    """One direction. Any thread may use it."""

    def __init__(self, bandwidth_mb_s: float | None, clock: Clock) -> None:
        """`bandwidth_mb_s` in megabytes per second; None: as fast as the real one, nothing is ever waited for."""
        self._byte_s = 0.0 if bandwidth_mb_s is None else 1e-6 / bandwidth_mb_s
        self._clock = clock
        self._free_s = 0.0
        self._lock = threading.Lock()

    def spend(self, num_bytes: int) -> float:
        """Wait until `num_bytes` have passed; the seconds that it took."""
        begun_s = self._clock.now_s()
        self._clock.wait_until(self.reserve(num_bytes))
        return self._clock.now_s() - begun_s if self._byte_s else 0.0

    def reserve(self, num_bytes: int) -> float:
        """When `num_bytes` that stand behind all before them will have passed, on the link's clock."""
        with self._lock:
            self._free_s = max(self._free_s, self._clock.now_s()) + num_bytes * self._byte_s
            return self._free_s


class Links:
    """Both directions of a worker's way to the others. Each method waits, and returns the seconds that it waited."""

    def __init__(self, bandwidth_mb_s: float | None, clock: Clock) -> None:
        self.up = Link(bandwidth_mb_s, clock)
        self.down = Link(bandwidth_mb_s, clock)
        self._limited = bandwidth_mb_s is not None
        self._clock = clock

    def upload(self, num_bytes: int) -> float:
        """Have `num_bytes` go to others."""
        return self.up.spend(num_bytes)

    def download(self, num_bytes: int) -> float:
        """Have `num_bytes` come from others."""
        return self.down.spend(num_bytes)

    def exchange(self, num_bytes: int) -> float:
        """Have `num_bytes` go and as many come at the same time."""
        if not self._limited:
            return 0.0
        begun_s = self._clock.now_s()
        self._clock.wait_until(max(self.up.reserve(num_bytes), self.down.reserve(num_bytes)))
        return self._clock.now_s() - begun_s
