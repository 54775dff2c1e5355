"""A clock whose time is the test's: waiting on it takes none."""

from __future__ import annotations


class ManualClock:
    def __init__(self) -> None:
        self.time_s = 100.0
        self.waits_s: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    def wait_until(self, until_s: float) -> None:
        self.waits_s.append(max(0.0, until_s - self.time_s))
        self.time_s = max(self.time_s, until_s)

    def work(self, seconds: float) -> None:
        """The host computes for so long."""
        self.time_s += seconds
