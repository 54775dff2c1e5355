"""How far apart the groups of a round arrive, and how long it is therefore worth waiting for the last of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

NUM_RECENT = 64
MIN_HISTORY = 5
DEFAULT_MS = 50.0
MIN_MS = 1.0
MAX_MS = 2000.0
NUM_DEVIATIONS = 3.0


@dataclass(slots=True)
class _Round:
    """A window that was closed before these groups arrived."""

    opened_s: float
    last_s: float
    missing: set[int]


class SpreadHistory:
    """Spreads of recent windows, first arrival to last, those that came too late for their window included.

    A window that closed without a group is finished when that group arrives after all; while a group owes an arrival
    to one window, later windows do not wait for it here, so that one that is hopelessly slow counts once.
    """

    def __init__(self) -> None:
        self._spreads_ms: deque[float] = deque(maxlen=NUM_RECENT)
        self._unfinished: list[_Round] = []

    def closed(self, opened_s: float, last_s: float, missing: Iterable[int], num_arrived: int) -> None:
        """A window closed: `num_arrived` groups arrived from `opened_s` to `last_s`, `missing` groups did not."""
        owing = {group for one in self._unfinished for group in one.missing}
        late = set(missing) - owing
        if late:
            self._unfinished.append(_Round(opened_s, last_s, late))
        elif num_arrived > 1:
            self._spreads_ms.append((last_s - opened_s) * 1000)

    def arrived(self, group: int, now_s: float) -> None:
        """The oldest step of the group arrived: it may finish a window that it was too late for."""
        for one in self._unfinished:
            if group in one.missing:
                one.missing.discard(group)
                one.last_s = max(one.last_s, now_s)
        self._finish()

    def keep_only(self, groups: Iterable[int]) -> None:
        """Groups that no longer take part owe nothing."""
        for one in self._unfinished:
            one.missing &= set(groups)
        self._finish()

    def _finish(self) -> None:
        for one in [one for one in self._unfinished if not one.missing]:
            self._unfinished.remove(one)
            if one.last_s > one.opened_s:
                self._spreads_ms.append((one.last_s - one.opened_s) * 1000)

    def window_ms(self) -> tuple[float, str]:
        """The window to use and why: median + 3 x MAD of recent spreads, within bounds."""
        if len(self._spreads_ms) < MIN_HISTORY:
            return DEFAULT_MS, f"{len(self._spreads_ms)} of {MIN_HISTORY} windows that are needed to judge"
        middle = median(self._spreads_ms)
        deviation = median(abs(spread - middle) for spread in self._spreads_ms)
        wanted = middle + NUM_DEVIATIONS * deviation
        reason = (
            f"median {middle:.3g} ms + {NUM_DEVIATIONS:g} x MAD {deviation:.3g} ms of {len(self._spreads_ms)} windows"
        )
        return min(MAX_MS, max(MIN_MS, wanted)), reason
