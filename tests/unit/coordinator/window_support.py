"""What tests of the window machine share: arrivals, rounds and a machine with live groups."""

from __future__ import annotations

from coordinator.events import Arrival, Decide, GroupsChanged, InFlight, RoundState, StepArrived, Wait
from coordinator.window import WindowMachine, WindowSettings
from geartrain.types import Interval


def arrival(group: int, step: int = 0, version: int = 0, num_samples: int = 8, skipped: str = "") -> Arrival:
    start = 1000 * group + num_samples * step
    interval = Interval(0, start, start + num_samples)
    return Arrival(group, step, version, interval, num_samples, (f"w{group}",), {"s0": 1}, 1.0, skipped)


def round_of(*steps: tuple[int, int, int], num_samples: int = 8, with_rows: set[int] | None = None) -> RoundState:
    """The undecided steps (group, step, version); by default exactly their groups have rows."""
    in_flight = tuple(InFlight(group, step, version, num_samples) for group, step, version in steps)
    return RoundState(in_flight, frozenset({step[0] for step in steps} if with_rows is None else with_rows))


def machine(settings: WindowSettings, groups: int = 3, version: int = 0) -> WindowMachine:
    window = WindowMachine(settings, version)
    window.handle(GroupsChanged(frozenset(range(groups)), frozenset(), 0.0), round_of())
    return window


def arrive(window: WindowMachine, one: Arrival, now_s: float, rounds: RoundState) -> Decide | Wait:
    (command,) = window.handle(StepArrived(one, now_s), rounds)
    return command
