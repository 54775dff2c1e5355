"""What the steps of a job tell of its devices: grants, reports and arrivals on their way to the matcher. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.events import StepId
from coordinator.matching import Matcher, Matching
from geartrain.wire.messages import Staged


class StepObserver(Protocol):
    """Hears of every step once: when it is granted, of each member's report, and when it has arrived."""

    def granted(self, step: StepId, now_s: float) -> None: ...

    def reported(self, report: Staged) -> None: ...

    def arrived(self, step: StepId, members: tuple[str, ...], now_s: float) -> None: ...


class Unobserved:
    """The observer of a job that has no portraits."""

    def granted(self, step: StepId, now_s: float) -> None:
        pass

    def reported(self, report: Staged) -> None:
        pass

    def arrived(self, step: StepId, members: tuple[str, ...], now_s: float) -> None:
        pass


@dataclass(slots=True)
class _Step:
    granted_s: float
    own_s: dict[str, float] = field(default_factory=dict)
    computed: bool = True


class MatchingObserver:
    """Hands to the matcher what members and groups needed for their steps; keeps the shares that it wants for it."""

    def __init__(self, matcher: Matcher, unix_time: Callable[[], float]) -> None:
        self._matcher = matcher
        self._unix_time = unix_time
        self._steps: dict[StepId, _Step] = {}
        self._last_arrival_s: dict[int, float] = {}
        self._new_shares: Matching | None = None

    def granted(self, step: StepId, now_s: float) -> None:
        self._steps[step] = _Step(now_s)

    def reported(self, report: Staged) -> None:
        step = self._steps.get(StepId(report.group, report.step))
        if step is not None:
            step.own_s[report.node] = report.busy_ms / 1000
            step.computed = step.computed and not report.skipped
        self._new_shares = self._matcher.observe(report, self._unix_time()) or self._new_shares

    def arrived(self, step: StepId, members: tuple[str, ...], now_s: float) -> None:
        seen = self._steps.pop(step, None)
        last_s = self._last_arrival_s.get(step.group)
        self._last_arrival_s[step.group] = now_s
        if seen is None or not seen.computed or seen.own_s.keys() != set(members):
            return
        # A step that was granted while the one before was under way began when that one ended.
        began_s = seen.granted_s if last_s is None else max(seen.granted_s, last_s)
        self._matcher.step_took(step.group, now_s - began_s, [seen.own_s[member] for member in members])

    def take_shares(self, version: int) -> Matching | None:
        """The shares that what was seen asks for, if it does, once; `version` is the cluster's."""
        wanted, self._new_shares = self._new_shares, None
        return wanted or self._matcher.rebalance(version, self._unix_time())
