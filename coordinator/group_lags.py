"""By how much longer the steps of a group take than its members need for their own parts. Pure.

What a group does together (its first member pulls the dense parameters for all, broadcasts, collectives, the wait for
whoever is slow by chance) is in no member's cost. It differs from group to group, and batches that ignore it arrive
apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

NUM_RECENT = 64
MIN_STEPS = 16
WORTH = 0.03
"""Batches are cut anew when lags have moved against each other by this part of a step."""
MOST = 0.5
"""No lag counts for more than this part of a step: a group without a batch would never tell that its lag is over."""


class GroupLags:
    """Lags in seconds by group, as they are in force; 0 until steps have told."""

    def __init__(self) -> None:
        self._recent: dict[int, deque[tuple[float, Sequence[float]]]] = {}
        self._lags_s: dict[int, float] = {}

    def add(self, group: int, seconds: float, own_s: Sequence[float]) -> None:
        """A step took `seconds` from grant to arrival, and each of the members `own_s` of its own time, in their order.

        Measured times, not predicted ones: where a member's cost is wrong, that is for its portrait to correct.
        """
        self._recent.setdefault(group, deque(maxlen=NUM_RECENT)).append((seconds, own_s))

    def lag_s(self, group: int) -> float:
        """The lag in force."""
        return self._lags_s.get(group, 0.0)

    def forget(self) -> None:
        """No lag is in force any more, and nothing is known of any."""
        self._recent.clear()
        self._lags_s.clear()

    def look(self, groups: Sequence[int]) -> str:
        """Take over what the steps of these live groups say, where that is worth other batches; why, or ''."""
        self._recent = {group: known for group, known in self._recent.items() if group in groups}
        if len(groups) < 2 or any(len(self._recent.get(group, ())) < MIN_STEPS for group in groups):
            return ""
        step_s = min(median(seconds for seconds, _ in self._recent[group]) for group in groups)
        found = {group: min(self._found_s(group), MOST * step_s) for group in groups}
        moved = [found[group] - self.lag_s(group) for group in groups]
        if max(moved) - min(moved) <= WORTH * step_s:
            return ""
        self._lags_s = found
        said = ", ".join(f"group {group} {1000 * lag:.3g}" for group, lag in found.items())
        return f"what groups need beside their members' own times, in ms: {said}"

    def _found_s(self, group: int) -> float:
        """Medians first, then the slowest member: who is the slowest of a step by chance is part of the lag."""
        steps = self._recent[group]
        of_members: list[float] = [median(own_s) for own_s in zip(*(own_s for _, own_s in steps), strict=True)]
        return max(0.0, median(seconds for seconds, _ in steps) - max(of_members))
