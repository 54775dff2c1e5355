"""Time as emulated cards and links need it: to be read, and to be waited for."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that can be waited on. Tests bring one whose time is theirs."""

    def now_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def wait_until(self, until_s: float) -> None:
        """Return at `until_s` or, where that has passed, at once."""


class HostClock:
    """The clock of this host. Waiting sleeps, so it takes no processor time, and ends within about 0.1 ms."""

    def now_s(self) -> float:
        return time.perf_counter()

    def wait_until(self, until_s: float) -> None:
        while (remaining_s := until_s - time.perf_counter()) > 0:
            time.sleep(remaining_s)
