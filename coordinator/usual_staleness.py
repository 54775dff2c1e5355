"""How stale contributions usually are, so that only those later than usual decay."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

NUM_RECENT = 63


class UsualStaleness:
    """The median staleness of recent contributions.

    Groups that never wait for each other all build on versions that are old by the number of groups. Decaying that
    would hold back no one in particular: it makes every step smaller.
    """

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def note(self, staleness: int) -> None:
        """A contribution of this staleness, in versions, was decided."""
        if len(self._recent) == NUM_RECENT:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(staleness)
        insort(self._sorted, staleness)

    @property
    def median(self) -> int:
        """The lower median, 0 before the first contribution."""
        return self._sorted[(len(self._sorted) - 1) // 2] if self._sorted else 0
