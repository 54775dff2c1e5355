"""Who computes which positions of the pass: leases of intervals, grants of steps, and what a change of groups returns.

Positions go from the pool to a group as a lease (the group may read ahead), from there to a step as a grant, and leave
when the step is decided. All groups that are equally far draw together, in the order of their ids, so that their
pieces are consecutive: as long as every window takes a step of every group, round r of all groups is exactly the
global batch [rB, (r+1)B).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coordinator.events import GroupSpec, InFlight, RoundState, StepId
from coordinator.intervals import IntervalSet
from coordinator.shares import ShareCut, cut_by_time, cut_equally, split_by_weight
from geartrain.errors import ConflictError, StaleMessageError, VersionError
from geartrain.types import Interval


@dataclass(frozen=True, slots=True)
class CutInterval:
    """An interval and its shares: member i takes positions [cuts[i], cuts[i+1])."""

    interval: Interval
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GiveGrant:
    """Grant one step to all members of a group. `ahead`: what the group will probably be granted next.

    Where steps overlap (pipeline depth 1) the first of `ahead` is certain: a worker reports the step only after it has
    fetched that one.

    A non-empty `skip` says why the step cannot be computed (batch norm on one sample): it is not sent to the group but
    handed to the window as an arrival skipped for that reason.
    """

    group: int
    step: int
    version: int
    interval: Interval
    cuts: tuple[int, ...]
    ahead: tuple[CutInterval, ...]
    skip: str
    reason: str


class TokenLookup(Protocol):
    """The tokens of the training data, by position of a pass."""

    def cumulative(self, interval: Interval) -> NDArray[np.int64]:
        """Tokens of the first k positions of `interval`, for k from 0 to its length."""


@dataclass(slots=True)
class _Step:
    cut: CutInterval
    version: int
    arrived: bool = False


@dataclass(slots=True)
class _Group:
    spec: GroupSpec
    live: bool = True
    next_step: int = 0
    steps: dict[int, _Step] = field(default_factory=dict)
    leased: deque[Interval] = field(default_factory=deque)
    # Shares of intervals that were announced, so that none is cut twice; void once the costs of members change.
    cuts: dict[Interval, tuple[CutInterval, str]] = field(default_factory=dict)

    @property
    def num_held(self) -> int:
        return len(self.steps) + len(self.leased)


class GrantMachine:
    """The positions of one pass after the other: in the pool, leased to groups, granted as steps, decided."""

    def __init__(
        self,
        num_rows: int,
        *,
        pipeline_depth: int = 0,
        lookahead: int = 2,
        min_share: int = 0,
        highest_group: int = -1,
        tokens: TokenLookup | None = None,
    ) -> None:
        """`num_rows` positions per pass. A group has at most `1 + pipeline_depth` undecided steps and `lookahead`
        leases.

        `min_share` is 2 with batch norm, else 0; group ids up to `highest_group` were used before. `tokens`: where
        samples differ in what they cost.
        """
        self.num_rows = num_rows
        self._num_undecided = 1 + pipeline_depth
        self._num_promised = pipeline_depth
        self._lookahead = lookahead
        self._min_share = min_share
        self._highest_group = highest_group
        self._tokens = tokens
        self._paused = False
        self._groups: dict[int, _Group] = {}
        self._pool = IntervalSet(0)
        self._version = 0

    # --- passes and groups -------------------------------------------------------------------------------------------

    def open_pass(self, pass_index: int, done: Iterable[Interval] = ()) -> None:
        """Begin a pass; `done` are its intervals that were applied or skipped before.

        Raises ConflictError while the last pass is not drained, ConservationError when `done` overlaps.
        """
        if not self.drained():
            raise ConflictError(
                f"pass {pass_index} cannot open: pass {self._pool.pass_index} has undecided steps or rows left",
                pass_index=self._pool.pass_index,
            )
        self._pool = IntervalSet(pass_index, done).missing(self.num_rows)

    def set_groups(self, groups: Iterable[GroupSpec], keep: Iterable[StepId], version: int) -> list[Interval]:
        """Make these the live groups at the current `version`; returns the intervals to be granted again, sorted.

        A group that stays keeps its id, its members and its undecided steps; its batch and its costs may be others from
        the next grant on. Of a group that goes only the steps in
        `keep` survive, to be decided. All leases but those promised to groups that stay return to the pool, so that the
        groups draw together. Raises ConflictError when an id was used before, or a step to keep has not arrived.
        """
        self._check_version(version)
        specs = sorted(groups, key=lambda spec: spec.group)
        kept = frozenset(keep)
        self._check_groups(specs)
        for step in sorted(kept):
            if not self._step(step).arrived:
                raise ConflictError(f"step {step.step} of group {step.group} has not arrived: it cannot be kept")
        live = {spec.group for spec in specs}
        returned: list[Interval] = []
        for number, group in list(self._groups.items()):
            self._return_leases(group, self._num_promised if number in live else 0)
            if number in live:
                continue
            group.live = False
            for step_number in [one for one in group.steps if (number, one) not in kept]:
                returned.append(group.steps.pop(step_number).cut.interval)
            self._forget_if_done(number)
        for interval in returned:
            self._pool.add(interval)
        for spec in specs:
            if spec.group in self._groups:
                self._groups[spec.group].spec = spec
                self._groups[spec.group].cuts.clear()
            else:
                self._groups[spec.group] = _Group(spec)
            self._highest_group = max(self._highest_group, spec.group)
        return sorted(returned)

    def pause(self) -> None:
        """Grant nothing more than what was promised, until `resume`: what is in flight ends, and groups can change."""
        self._paused = True
        for group in self._groups.values():
            self._return_leases(group, self._num_promised)

    def resume(self) -> None:
        """Grant again."""
        self._paused = False

    @property
    def idle(self) -> bool:
        """No step is in flight and none is promised."""
        return all(group.num_held == 0 for group in self._groups.values())

    def _check_groups(self, specs: list[GroupSpec]) -> None:
        members = [member for spec in specs for member in spec.members]
        if len(members) != len(set(members)) or len({spec.group for spec in specs}) != len(specs):
            raise ConflictError("a group or a member is named twice", members=members)
        for spec in specs:
            known = self._groups.get(spec.group)
            if known is not None and known.live and known.spec.members == spec.members:
                continue
            if spec.group <= self._highest_group or not spec.members:
                raise ConflictError(
                    f"group {spec.group} of {list(spec.members)} is refused: ids to {self._highest_group} were used, "
                    "a new membership needs a new id and a member",
                    group=spec.group,
                    expected=f"an id above {self._highest_group}",
                )

    def _return_leases(self, group: _Group, num_kept: int) -> None:
        while len(group.leased) > num_kept:
            returned = group.leased.pop()
            group.cuts.pop(returned, None)
            self._pool.add(returned)

    def _forget_if_done(self, number: int) -> None:
        if not self._groups[number].live and not self._groups[number].steps:
            del self._groups[number]

    # --- steps -------------------------------------------------------------------------------------------------------

    def arrived(self, step: StepId) -> None:
        """The step is committed: it can be kept when groups change. Raises StaleMessageError for an unknown step."""
        self._step(step).arrived = True

    def decided(self, step: StepId, version: int) -> None:
        """The step was applied or skipped; `version` is the cluster's after it.

        Raises StaleMessageError for an unknown step, ConflictError before it arrived, VersionError if versions go back.
        """
        self._check_version(version)
        if not self._step(step).arrived:
            raise ConflictError(f"step {step.step} of group {step.group} is decided, but has not arrived")
        del self._groups[step.group].steps[step.step]
        self._forget_if_done(step.group)

    def undecided_arrivals(self) -> list[StepId]:
        """The steps to keep when groups change: arrived, not decided."""
        steps = ((number, one) for number, group in self._groups.items() for one in group.steps)
        return sorted(StepId(number, one) for number, one in steps if self._groups[number].steps[one].arrived)

    def _step(self, step: StepId) -> _Step:
        group = self._groups.get(step.group)
        if group is None or step.step not in group.steps:
            raise StaleMessageError(
                f"step {step.step} of group {step.group} is not in flight",
                got=list(step),
                current=[list(StepId(one.group, one.step)) for one in self.round_state().in_flight],
            )
        return group.steps[step.step]

    def round_state(self) -> RoundState:
        """The undecided steps and who has rows. Ask after `grants`: before, some rows are not yet steps."""
        in_flight = tuple(
            InFlight(number, one, step.version, step.cut.interval.num_samples)
            for number, group in sorted(self._groups.items())
            for one, step in sorted(group.steps.items())
        )
        gives_more = bool(self._pool) and not self._paused
        with_rows = frozenset(
            group.spec.group
            for group in self._live()
            if group.num_held > 0 or (gives_more and group.spec.batch_size > 0)
        )
        return RoundState(in_flight, with_rows)

    def _check_version(self, version: int) -> None:
        if version < self._version:
            raise VersionError(
                f"version {version} after version {self._version}: versions never go back",
                got=version,
                current=self._version,
            )
        self._version = version

    def drained(self) -> bool:
        """All positions of the pass are decided."""
        return not self._pool and self.idle

    def _live(self) -> list[_Group]:
        return [group for _, group in sorted(self._groups.items()) if group.live]

    # --- granting ----------------------------------------------------------------------------------------------------

    def grants(self, version: int) -> list[GiveGrant]:
        """The steps that can be granted at the current `version`, which they build on.

        Call it once after all decisions of a window were told: groups that were decided together draw together.
        """
        self._check_version(version)
        self._lease()
        given = [grant for group in self._live() for grant in self._grant_leases(group, version)]
        for group in self._live():
            taking = True
            while taking and group.num_held < self._num_undecided:
                taking = self._take_over(group)
            given.extend(self._grant_leases(group, version))
        return given

    def _lease(self) -> None:
        target = self._num_undecided + self._lookahead
        while self._pool and not self._paused:
            wanting = [one for one in self._live() if one.num_held < target and one.spec.batch_size > 0]
            if not wanting:
                return
            least = min(group.num_held for group in wanting)
            self._draw([group for group in wanting if group.num_held == least])

    def _draw(self, groups: list[_Group]) -> None:
        """One piece for each, consecutive; an interval too short for all is shared in proportion to the batches."""
        sizes = [group.spec.batch_size for group in groups]
        length = self._pool.first_length()
        if length < sum(sizes):
            parts = split_by_weight(length, sizes, self._min_share)
            fit = all(group.spec.holds(part) for group, part in zip(groups, parts, strict=True))
            # Where memory is full nobody can take what is too little for others, and that will be refused.
            sizes = parts if fit else split_by_weight(length, sizes)
        elif len(groups) < sum(group.spec.batch_size > 0 for group in self._live()):
            # (A round of all groups is a global batch: its bounds are the same in a cluster of any size.)
            sizes[-1] += self._too_little(length - sum(sizes), groups[-1].spec)
        for group, size in zip(groups, sizes, strict=True):
            if size > 0:
                group.leased.append(self._pool.take(size))

    def _too_little(self, rest: int, spec: GroupSpec) -> int:
        """`rest` positions if they are too few for a step of their own, and so go with the step before; else 0."""
        return rest if 0 < rest < self._min_share and spec.holds(spec.batch_size + rest) else 0

    def _take_over(self, group: _Group) -> bool:
        """At the tail of the pass: a lease of the group with most of them goes to one that could start it now.

        Not a lease that was promised as the first of `ahead`: its group waits for it.
        """
        if group.spec.batch_size == 0 or self._paused:
            return False
        if not self._pool:
            holder = max(self._live(), key=lambda one: (len(one.leased), -one.spec.group))
            if len(holder.leased) <= self._num_promised:
                return False
            self._return_leases(holder, len(holder.leased) - 1)
        size = group.spec.batch_size
        group.leased.append(self._pool.take(size + self._too_little(self._pool.first_length() - size, group.spec)))
        return True

    def _grant_leases(self, group: _Group, version: int) -> list[GiveGrant]:
        given: list[tuple[int, CutInterval, str, int]] = []
        while group.leased and len(group.steps) < self._num_undecided:
            cut, refused = self._cut(group, group.leased.popleft())
            group.cuts.pop(cut.interval, None)
            group.steps[group.next_step] = _Step(cut, version)
            given.append((group.next_step, cut, refused, len(group.steps)))
            group.next_step += 1
        # What is refused never reaches the group, and ends what can be said of the steps to come.
        coming = [*((cut, refused) for _, cut, refused, _ in given), *(self._cut(group, one) for one in group.leased)]
        return [
            GiveGrant(
                group=group.spec.group,
                step=step,
                version=version,
                interval=cut.interval,
                cuts=cut.cuts,
                ahead=tuple(one for one, _ in takewhile(lambda one: not one[1], coming[place:])),
                skip=refused,
                reason=f"{in_flight} of {self._num_undecided} steps in flight, {len(group.leased)} leases, "
                f"{self._pool.num_samples} positions of pass {cut.interval.pass_index} in the pool",
            )
            for place, (step, cut, refused, in_flight) in enumerate(given, start=1)
        ]

    def _cut(self, group: _Group, interval: Interval) -> tuple[CutInterval, str]:
        """The shares of an interval, and why the group cannot compute it, if so."""
        if interval not in group.cuts:
            cuts, refused = self._shares(group.spec, interval)
            group.cuts[interval] = CutInterval(interval, tuple(cuts)), refused
        return group.cuts[interval]

    def _shares(self, spec: GroupSpec, interval: Interval) -> ShareCut:
        if not spec.costs:
            return cut_equally(interval, len(spec.members), self._min_share)
        tokens = self._tokens.cumulative(interval) if self._tokens is not None else None
        return cut_by_time(interval, spec.costs, self._min_share, tokens)
