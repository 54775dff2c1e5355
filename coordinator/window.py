"""The window machine: which arrived steps form the next version, with which weights, and why now.

`sync` is the window that waits for all groups with rows, `async` the one that never waits, `hybrid` the one that waits
`window_ms` from its first arrival: one mechanism, so hybrid makes the decisions of sync when all arrive in time.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass
from typing import Any

from coordinator.events import (
    Arrival,
    Decide,
    GroupsChanged,
    InFlight,
    RoundState,
    StepArrived,
    Wait,
    WeighedStep,
    WindowCommand,
    WindowEvent,
)
from coordinator.spreads import SpreadHistory
from coordinator.step_durations import StepDurations
from coordinator.usual_staleness import UsualStaleness
from geartrain.errors import ConfigError, StaleMessageError

MODES = ("sync", "async", "hybrid")


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """How windows close. `window_ms` None: from the history of arrivals; `max_staleness` None: 2 x groups + depth.

    Without `step_scale` every window is a whole step of the optimizer, however few of the round's samples it holds.

    Raises ConfigError for values that no window could work with.
    """

    mode: str
    window_ms: float | None = None
    staleness_decay: float = 0.9
    max_staleness: int | None = None
    pipeline_depth: int = 0
    step_scale: bool = True

    def __post_init__(self) -> None:
        checks = {
            "mode": (self.mode in MODES, f"one of {', '.join(MODES)}"),
            "window_ms": (self.window_ms is None or self.window_ms >= 0, "a number >= 0"),
            "staleness_decay": (0 < self.staleness_decay <= 1, "a number > 0 and <= 1"),
            "pipeline_depth": (self.pipeline_depth >= 0, "an integer >= 0"),
            # With less, the second step that a group has in flight could never be applied.
            "max_staleness": (
                self.max_staleness is None or self.max_staleness >= self.pipeline_depth,
                f"an integer >= pipeline_depth ({self.pipeline_depth})",
            ),
        }
        for name, (holds, expected) in checks.items():
            if not holds:
                value = getattr(self, name)
                raise ConfigError(
                    f"sync.{name} is {value!r}, expected {expected}",
                    field=f"sync.{name}",
                    value=value,
                    expected=expected,
                )


class WindowMachine:
    """Collects arrivals and decides windows, one after the other. `version` is the last one decided."""

    def __init__(self, settings: WindowSettings, version: int = 0) -> None:
        self.version = version
        self._settings = settings
        self._live: frozenset[int] = frozenset()
        self._most_live = 0
        self._queues: dict[int, list[Arrival]] = {}
        self._last_decided: dict[int, int] = {}
        self._opened_s: float | None = None
        self._last_arrival_s = 0.0
        self._spreads = SpreadHistory()
        self._durations = StepDurations()
        self._usual = UsualStaleness()
        self._histogram: Counter[int] = Counter()
        self._reason = "no step has arrived"

    # --- events ------------------------------------------------------------------------------------------------------

    def handle(self, event: WindowEvent, round_state: RoundState) -> list[WindowCommand]:
        """Exactly one command: `Decide` (then tell the grants, and hand a `Tick` with the new round) or `Wait`.

        Raises StaleMessageError for a step of a group that does not live; nothing has changed then.
        """
        if isinstance(event, StepArrived):
            self._note(event.arrival, event.now_s)
        elif isinstance(event, GroupsChanged):
            self._change_groups(event)
        command = self._decide(round_state, event.now_s)
        if isinstance(command, Decide) or any(self._queues.values()):
            self._reason = command.reason  # while nothing has arrived, that of the last decision stays to be seen
        return [command]

    def change(self, settings: WindowSettings) -> None:
        """Close windows by other settings from the next look on."""
        self._settings = settings

    @property
    def settings(self) -> WindowSettings:
        """The settings in force."""
        return self._settings

    def snapshot(self, now_s: float) -> dict[str, Any]:
        """The state for `/v1/window`. `open_window`: None, or how long it is open and which groups are in it."""
        return {
            "mode": self._settings.mode,
            "window_ms": "auto" if self._settings.window_ms is None else self._settings.window_ms,
            "effective_window_ms": self._window_ms()[0],
            "open_window": self._open_window(now_s),
            "queue_length": sum(len(queue) for queue in self._queues.values()),
            "staleness_histogram": {str(key): count for key, count in sorted(self._histogram.items())},
            "staleness_decay": self._settings.staleness_decay,
            "max_staleness": self.max_staleness,
            "reason": self._reason,
        }

    @property
    def max_staleness(self) -> int:
        """The bound in force: the one set, or 2 x groups + pipeline depth.

        The groups counted are the most that lived at once: a step that kept the bound when it was granted keeps it when
        groups go.
        """
        if self._settings.max_staleness is not None:
            return self._settings.max_staleness
        return 2 * self._most_live + self._settings.pipeline_depth

    def _open_window(self, now_s: float) -> dict[str, Any] | None:
        if self._opened_s is None:
            return None
        return {
            "version": self.version + 1,
            "open_ms": (now_s - self._opened_s) * 1000,
            "groups": sorted(group for group, queue in self._queues.items() if queue),
        }

    def _note(self, arrival: Arrival, now_s: float) -> None:
        if arrival.group not in self._live:
            raise StaleMessageError(
                f"step {arrival.step} of group {arrival.group}, which does not live",
                got=arrival.group,
                current=sorted(self._live),
            )
        queue = self._queues.setdefault(arrival.group, [])
        if arrival.step <= self._last_decided.get(arrival.group, -1) or any(one.step == arrival.step for one in queue):
            return
        insort(queue, arrival, key=lambda one: one.step)
        self._last_arrival_s = now_s
        if queue[0] is arrival:
            self._spreads.arrived(arrival.group, now_s)
            self._durations.arrived(arrival.group, now_s)

    def _change_groups(self, event: GroupsChanged) -> None:
        self._live = event.live
        self._most_live = max(self._most_live, len(event.live))
        for group in [one for one in self._queues if one not in event.live]:
            self._queues[group] = [arrival for arrival in self._queues[group] if arrival.id in event.keep]
            if not self._queues[group]:
                del self._queues[group]
        self._last_decided = {group: step for group, step in self._last_decided.items() if group in event.live}
        self._spreads.keep_only(event.live)
        self._durations.keep_only(event.live)
        if not any(self._queues.values()):
            self._opened_s = None

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _decide(self, round_state: RoundState, now_s: float) -> WindowCommand:
        oldest = round_state.oldest
        heads = [
            queue[0]
            for group, queue in sorted(self._queues.items())
            # A later step that overtook the group's oldest waits for it: versions of a group's steps are exact.
            if queue and group in oldest and queue[0].step == oldest[group].step
        ]
        if not heads:
            return Wait(None, "no step has arrived")
        if self._opened_s is None:
            self._opened_s = now_s
        missing = sorted(round_state.with_rows - {head.group for head in heads})
        arrived = f"{len(heads)} of {len(heads) + len(missing)} arrived"
        wait, why = self._wait(missing, now_s)
        if wait is not None:
            return Wait(wait.until_s, f"{arrived}, {wait.reason}")
        contributing = [head for head in heads if not head.skipped]
        held = self._held_by(round_state, heads) if contributing else None
        if held is not None:
            return Wait(
                None,
                f"{arrived}, but version {self.version + 1} waits for step {held.step} of group {held.group}: "
                f"it builds on version {held.version}, max_staleness is {self.max_staleness}",
            )
        return self._close(heads, round_state, missing, now_s, f"{arrived}, {why}")

    def _wait(self, missing: list[int], now_s: float) -> tuple[Wait | None, str]:
        """Whether to wait for the missing groups, and why (not)."""
        if not missing:
            return None, "nobody is missing"
        if self._settings.mode == "async":
            return None, "async waits for none"
        if self._settings.mode == "sync":
            return Wait(None, f"sync waits for group {missing[0]}"), ""
        window_ms, source = self._window_ms()
        # Compared in the form in which it is handed out, so that a caller that sleeps until it finds it reached.
        deadline_s = (self._opened_s or 0.0) + window_ms / 1000
        if now_s >= deadline_s:
            return None, f"window of {window_ms:.4g} ms ({source}) is over without group {missing[0]}"
        late = self._too_late(missing, deadline_s)
        if late is not None:
            return None, f"group {missing[0]} cannot come within the window of {window_ms:.4g} ms ({source}): {late}"
        return Wait(deadline_s, f"deadline in {(deadline_s - now_s) * 1000:.4g} ms ({source})"), ""

    def _too_late(self, missing: list[int], deadline_s: float) -> str | None:
        """Why it is no use to wait: none of the missing groups has ever been so fast that it could come in time."""
        earliest = [self._durations.earliest_s(group) for group in missing]
        known = [one for one in earliest if one is not None]
        if len(known) < len(missing) or min(known) <= deadline_s:
            return None
        return f"its steps are never so short that it could, by {(min(known) - deadline_s) * 1000:.3g} ms"

    def _window_ms(self) -> tuple[float, str]:
        if self._settings.window_ms is not None:
            return self._settings.window_ms, "as set"
        return self._spreads.window_ms()

    def _held_by(self, round_state: RoundState, heads: list[Arrival]) -> InFlight | None:
        """The granted step that would become too stale by the window, if any.

        A group's j-th undecided step is applied j windows after the next at the earliest, so it needs j versions of the
        bound in reserve: without that, a group with two steps in flight could block itself for ever. A group in the
        window never holds it up: its other steps come one nearer, so their reserve stays as it was.
        """
        in_window = {head.group for head in heads}
        position: Counter[int] = Counter()
        for step in sorted(round_state.in_flight, key=lambda one: (one.group, one.step)):
            if step.group in in_window:
                continue
            if step.version < self.version + 1 + position[step.group] - self.max_staleness:
                return step
            position[step.group] += 1
        return None

    def _close(
        self, heads: list[Arrival], round_state: RoundState, missing: list[int], now_s: float, reason: str
    ) -> Decide:
        contributions = tuple(self._weigh(head) for head in heads if not head.skipped)
        skipped = tuple(head for head in heads if head.skipped)
        num_samples = sum(one.arrival.num_samples for one in contributions)
        weighted = sum(one.weight * one.arrival.num_samples for one in contributions)
        planned = sum(round_state.planned.values())
        for one in contributions:
            self._usual.note(self.version - one.arrival.version)
            self._histogram[one.staleness] += 1
        if self._settings.mode != "async":
            opened_s = now_s if self._opened_s is None else self._opened_s
            self._spreads.closed(opened_s, max(opened_s, self._last_arrival_s), missing, len(heads))
        for head in heads:
            self._queues[head.group].pop(0)
            if not self._queues[head.group]:
                del self._queues[head.group]
            if head.group in self._live:
                self._last_decided[head.group] = head.step
                if head.group not in self._queues:  # else its next step has arrived, and it is not waited for
                    self._durations.decided(head.group, now_s)
        self._opened_s = None
        if skipped:
            named = ", ".join(f"step {one.step} of group {one.group} ({one.skipped})" for one in skipped)
            reason = f"{reason}; skipped {named}"
        if not contributions:
            return Decide(self.version, (), skipped, divisor=0.0, step_scale=0.0, most_windows=1.0, reason=reason)
        self.version += 1
        scale, most_windows = 1.0, 1.0
        if self._settings.step_scale:
            scale, most_windows = weighted / planned, max(1.0, planned / num_samples)
        return Decide(self.version, contributions, skipped, weighted, scale, most_windows, reason)

    def _weigh(self, arrival: Arrival) -> WeighedStep:
        staleness = self.version - arrival.version
        depth = self._settings.pipeline_depth
        late = max(0, staleness - max(depth, self._usual.median))
        return WeighedStep(arrival, max(0, staleness - depth), self._settings.staleness_decay**late)
