"""When a step has arrived: every member reported it staged, at servers that still hold it.

A report is repeated until a decision names its step, so the same one may come many times, late, or after a change of
groups: a repeated one changes nothing, one that belongs to the past is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from coordinator.events import Arrival, StepId
from coordinator.grants import GiveGrant
from geartrain.errors import RoleDiedError, StaleMessageError, WireError
from geartrain.types import Interval
from geartrain.wire.messages import Staged

NUM_REMEMBERED = 64
"""Decisions remembered per group, to answer reports that crossed them: far more than a group can have in flight."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The report is noted; the step is not complete now, or was already."""

    reason: str


@dataclass(frozen=True, slots=True)
class AlreadyDecided:
    """The step was decided before: tell the sender again."""

    step: StepId
    version: int


ReportOutcome: TypeAlias = Arrival | Pending | AlreadyDecided


@dataclass(slots=True)
class _Open:
    """A granted step and the reports that came for it."""

    interval: Interval
    cuts: tuple[int, ...]
    members: tuple[str, ...]
    reports: dict[str, Staged] = field(default_factory=dict)
    complete: bool = False


class ArrivalCollector:
    """The steps that were granted and are not decided, and which members have reported each as staged."""

    def __init__(self, term: int, servers: Mapping[str, int]) -> None:
        """`servers`: the incarnation of every server by name, fixed for the term: a server that restarts ends it."""
        self._term = term
        self._servers = dict(servers)
        self._members: dict[int, tuple[str, ...]] = {}
        self._incarnations: dict[str, int] = {}
        self._open: dict[StepId, _Open] = {}
        self._decided: dict[int, dict[int, int]] = {}

    def set_groups(
        self,
        members: Mapping[int, tuple[str, ...]],
        incarnations: Mapping[str, int],
        keep: Iterable[StepId] = (),
    ) -> None:
        """The live groups (members in rank order), the incarnation of every worker, and the arrivals to keep."""
        kept = frozenset(keep)
        self._members = dict(members)
        self._incarnations = dict(incarnations)
        self._open = {step: one for step, one in self._open.items() if step.group in members or step in kept}
        self._decided = {group: versions for group, versions in self._decided.items() if group in members}

    def expect(self, grant: GiveGrant) -> Arrival | None:
        """Note a granted step; returns its arrival (staged by nobody) at once when the grant is one to skip."""
        step = StepId(grant.group, grant.step)
        members = self._members[grant.group]
        self._open[step] = _Open(grant.interval, grant.cuts, members, complete=bool(grant.skip))
        if not grant.skip:
            return None
        return Arrival(
            group=grant.group,
            step=grant.step,
            version=grant.version,
            interval=grant.interval,
            num_samples=grant.interval.num_samples,
            workers=(),
            servers={},
            loss_sum=0.0,
            skipped=grant.skip,
        )

    def handle(self, staged: Staged) -> ReportOutcome:
        """Note a member's report; its `start`, `stop` and `num_samples` are those of its own share.

        Raises StaleMessageError (lower term, old incarnation, group not live, unknown step), RoleDiedError when a
        server restarted and lost what it staged, WireError when the report contradicts the grant.
        """
        self._refuse_stale(staged)
        step = StepId(staged.group, staged.step)
        version = self._decided.get(step.group, {}).get(step.step)
        if version is not None:
            return AlreadyDecided(step, version)
        opened = self._open.get(step)
        if opened is None:
            current = sorted(one.step for one in self._open if one.group == step.group)
            raise StaleMessageError(
                f"{staged.node} reports step {step.step} of group {step.group}; in flight are {current}",
                got=list(step),
                current=current,
            )
        self._check(staged, opened)
        if opened.complete:
            return Pending(f"step {step.step} of group {step.group} has arrived and waits for its window")
        opened.reports[staged.node] = staged
        missing = [member for member in opened.members if member not in opened.reports]
        if missing:
            staged_by = f"{len(opened.reports)} of {len(opened.members)} members"
            return Pending(f"{staged_by} staged step {step.step} of group {step.group}, {missing[0]} has not")
        opened.complete = True
        return self._arrival(step, opened)

    def decided(self, step: StepId, version: int) -> None:
        """The step needs no more reports; later ones are answered with `version`."""
        self._open.pop(step, None)
        if step.group in self._members:
            remembered = self._decided.setdefault(step.group, {})
            remembered[step.step] = version
            if len(remembered) > NUM_REMEMBERED:
                del remembered[min(remembered)]

    def _refuse_stale(self, staged: Staged) -> None:
        node = staged.node
        if staged.term != self._term:
            kind = "lower" if staged.term < self._term else "higher"
            raise StaleMessageError(
                f"{node} reports in the {kind} term {staged.term}, the term is {self._term}",
                got=staged.term,
                current=self._term,
            )
        members = self._members.get(staged.group)
        if members is None:
            raise StaleMessageError(
                f"{node} reports for group {staged.group}, which does not live",
                got=staged.group,
                current=sorted(self._members),
            )
        if node not in members:
            raise StaleMessageError(f"{node} is no member of group {staged.group}", got=node, current=list(members))
        living = self._incarnations.get(node)
        if staged.incarnation != living:
            raise StaleMessageError(
                f"{node} reports with incarnation {staged.incarnation}, the one that lives has {living}",
                got=staged.incarnation,
                current=living,
            )

    def _check(self, staged: Staged, opened: _Open) -> None:
        where = f"{staged.node}, step {staged.step} of group {staged.group}"
        rank = opened.members.index(staged.node)
        expected = [opened.cuts[rank], opened.cuts[rank + 1]]
        if [staged.start, staged.stop] != expected or staged.num_samples != expected[1] - expected[0]:
            raise WireError(
                f"{where}: reports {staged.num_samples} samples in positions {staged.start} to {staged.stop}, "
                f"its share is {expected[0]} to {expected[1]}",
                expected=expected,
                got=[staged.start, staged.stop, staged.num_samples],
            )
        if staged.skipped:
            return
        if staged.servers.keys() != self._servers.keys():
            raise WireError(
                f"{where}: staged at {sorted(staged.servers)}, the servers are {sorted(self._servers)}",
                expected=sorted(self._servers),
                got=sorted(staged.servers),
            )
        for server, incarnation in staged.servers.items():
            if incarnation != self._servers[server]:
                raise RoleDiedError(
                    f"server {server} restarted: {where} is staged at its incarnation {incarnation}, "
                    f"the job began with {self._servers[server]}",
                    role=server,
                    got=incarnation,
                    current=self._servers[server],
                )

    def _arrival(self, step: StepId, opened: _Open) -> Arrival:
        reports = [opened.reports[member] for member in opened.members]
        skipped = next((report.skipped for report in reports if report.skipped), "")
        return Arrival(
            group=step.group,
            step=step.step,
            version=min(report.version for report in reports),
            interval=opened.interval,
            num_samples=opened.interval.num_samples,
            workers=opened.members,
            servers=self._servers,
            loss_sum=0.0 if skipped else sum(report.loss_sum for report in reports),
            skipped=skipped,
        )
