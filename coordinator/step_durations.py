"""How long groups take from a decision to their next arrival: whether it is any use to wait for one that is missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

NUM_RECENT = 16
MIN_HISTORY = 5
PLACE = 1
"""Of the sorted recent durations the second shortest is taken for the shortest that must be reckoned with."""


class StepDurations:
    """Recent times from the decision of a group's step to the arrival of its next one."""

    def __init__(self) -> None:
        self._began_s: dict[int, float] = {}
        self._durations_s: dict[int, deque[float]] = {}

    def decided(self, group: int, now_s: float) -> None:
        """The group's oldest step was decided: it is on its next one from now on."""
        self._began_s[group] = now_s

    def arrived(self, group: int, now_s: float) -> None:
        """The group's oldest step arrived."""
        began_s = self._began_s.pop(group, None)
        if began_s is not None:
            self._durations_s.setdefault(group, deque(maxlen=NUM_RECENT)).append(now_s - began_s)

    def keep_only(self, groups: Iterable[int]) -> None:
        """Forget groups that no longer live."""
        live = set(groups)
        self._began_s = {group: began_s for group, began_s in self._began_s.items() if group in live}
        self._durations_s = {group: known for group, known in self._durations_s.items() if group in live}

    def earliest_s(self, group: int) -> float | None:
        """When the group may arrive at the earliest; None when too little is known of it."""
        began_s, known = self._began_s.get(group), self._durations_s.get(group, ())
        if began_s is None or len(known) < MIN_HISTORY:
            return None
        return began_s + sorted(known)[PLACE]
