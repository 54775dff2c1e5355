"""What the pure machines of the coordinator tell each other: the values that events and commands are made of.

Nothing here acts. `core` feeds these into `arrivals`, `grants` and `window`, and turns what they return into messages
and journal entries. Times are seconds of one monotonic clock that the caller owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from coordinator.cost_model import CostModel
from geartrain.types import Interval


class StepId(NamedTuple):
    """A step of a group. Group ids are never used twice, steps of a group count from 0: the pair is never ambiguous."""

    group: int
    step: int


@dataclass(frozen=True, slots=True)
class MemberCost:
    """What a step costs a member, and the most samples that its memory holds (None: no bound is known)."""

    cost: CostModel
    max_samples: int | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A sync group: its members in rank order and its part of the cluster's batch, in samples.

    `costs`, one for each member, cut its steps so that all finish together; without them shares are equal.
    """

    group: int
    members: tuple[str, ...]
    batch_size: int
    costs: tuple[MemberCost, ...] = ()

    def holds(self, num_samples: int) -> bool:
        """Whether so many samples fit in the memory of the members, as far as it is known."""
        bounds = [one.max_samples for one in self.costs if one.max_samples is not None]
        return not bounds or len(bounds) < len(self.costs) or sum(bounds) >= num_samples


@dataclass(frozen=True, slots=True)
class InFlight:
    """A granted step that is not decided: the version it builds on and the samples it was planned with."""

    group: int
    step: int
    version: int
    num_samples: int


@dataclass(frozen=True, slots=True)
class RoundState:
    """What the window machine must know of the grants: the undecided steps, by group and step, and who has rows left.

    `with_rows` holds the live groups that have an undecided step or could still be given rows of the pass; these, and
    the groups whose kept steps wait for a decision, make the quorum.
    """

    in_flight: tuple[InFlight, ...]
    with_rows: frozenset[int]

    @property
    def oldest(self) -> dict[int, InFlight]:
        """The oldest undecided step of each group: the only one of it that can be in the next window."""
        first: dict[int, InFlight] = {}
        for step in self.in_flight:
            if step.group not in first or step.step < first[step.group].step:
                first[step.group] = step
        return first

    @property
    def planned(self) -> dict[int, int]:
        """Samples that each group planned for one round, by group id."""
        return {group: step.num_samples for group, step in self.oldest.items()}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A step that all members have staged. `version` is the lowest that any member pulled; `workers` in rank order.

    `skipped` holds the reason when the step contributes nothing (non-finite gradient, a share too small for batch
    norm); then `num_samples` still counts the samples of the interval, which go to the account of the skipped. A step
    that was never sent to its group has no workers and no servers.
    """

    group: int
    step: int
    version: int
    interval: Interval
    num_samples: int
    workers: tuple[str, ...]
    servers: Mapping[str, int]
    loss_sum: float
    skipped: str

    @property
    def id(self) -> StepId:
        return StepId(self.group, self.step)


# --- events of the window machine ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepArrived:
    """An arrival, already journaled."""

    arrival: Arrival
    now_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, or the round has changed after a decision: look again."""

    now_s: float


@dataclass(frozen=True, slots=True)
class GroupsChanged:
    """The live groups from now on; arrived steps of other groups survive only when they are in `keep`."""

    live: frozenset[int]
    keep: frozenset[StepId]
    now_s: float


WindowEvent: TypeAlias = StepArrived | Tick | GroupsChanged

# --- commands of the window machine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WeighedStep:
    """An arrival in a window. `staleness` counts the versions beyond the pipeline depth, `weight` decays with those
    beyond what is usual."""

    arrival: Arrival
    staleness: int
    weight: float


@dataclass(frozen=True, slots=True)
class Decide:
    """Close the window.

    With contributions (in the order of group ids) it makes `version`, to be applied by all servers; without, nothing is
    applied and `version` is the one that was. `most_windows` such windows hold as many samples as a round. `skipped`
    steps are decided by it too, at `version`.
    After it the caller tells the grants of every decided step, grants again, and hands a `Tick` with the new round.
    """

    version: int
    contributions: tuple[WeighedStep, ...]
    skipped: tuple[Arrival, ...]
    divisor: float
    step_scale: float
    most_windows: float
    reason: str

    @property
    def steps(self) -> list[StepId]:
        """All steps that this decision names."""
        return sorted([weighed.arrival.id for weighed in self.contributions] + [one.id for one in self.skipped])


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to decide yet; ask again at `until_s` (None: only an arrival or a change of groups can help)."""

    until_s: float | None
    reason: str


WindowCommand: TypeAlias = Decide | Wait
