"""A cluster without processes: the pure machines composed as the coordinator composes them, driven by hand.

Every decision is checked against the documented arithmetic, recomputed here from what the model itself noted.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings

from coordinator import journal
from coordinator.arrivals import ArrivalCollector, ReportOutcome
from coordinator.events import (
    Arrival,
    Decide,
    GroupsChanged,
    GroupSpec,
    RoundState,
    StepArrived,
    StepId,
    Tick,
    Wait,
    WindowEvent,
)
from coordinator.grants import GiveGrant, GrantMachine
from coordinator.shares import group_batch_sizes
from coordinator.window import WindowMachine, WindowSettings
from geartrain.types import Interval
from geartrain.wire.messages import Staged

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests: a machine that is busy with something else fails none of them."""

SERVERS = {"s0": 11, "s1": 12}
TERM = 3


@dataclass(frozen=True)
class Setting:
    """What a run of the model is made of."""

    mode: str = "sync"
    group_sizes: tuple[int, ...] = (2,)
    batch_size: int = 8
    num_rows: int = 64
    depth: int = 0
    lookahead: int = 2
    min_share: int = 0
    window_ms: float | None = 10.0
    decay: float = 0.9
    max_staleness: int | None = None


class ClusterModel:
    """`to_stage` holds the granted steps that no member has completed yet, oldest first."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.settings = WindowSettings(
            setting.mode, setting.window_ms, setting.decay, setting.max_staleness, setting.depth
        )
        self.grants = GrantMachine(
            setting.num_rows,
            pipeline_depth=setting.depth,
            lookahead=setting.lookahead,
            min_share=setting.min_share,
        )
        self.window = WindowMachine(self.settings)
        self.arrivals = ArrivalCollector(TERM, SERVERS)
        self.now_s = 100.0
        self.entries: list[journal.Entry] = [journal.JobStarted(TERM, "job")]
        self.decisions: list[Decide] = []
        self.granted: list[GiveGrant] = []
        self.to_stage: dict[StepId, GiveGrant] = {}
        self.promised: dict[int, Interval] = {}
        self.specs: dict[int, GroupSpec] = {}
        self.wait: Wait | None = None
        self._num_workers = 0
        self._next_group = 0
        self.regroup(set(), setting.group_sizes)

    # --- what happens ------------------------------------------------------------------------------------------------

    def regroup(self, going: set[int], new_sizes: tuple[int, ...]) -> None:
        """Groups `going` die, new ones of these sizes join; the batch is shared among all anew."""
        staying = [spec for group, spec in self.specs.items() if group not in going]
        fresh = []
        for size in new_sizes:
            members = tuple(f"w{self._num_workers + rank}" for rank in range(size))
            self._num_workers += size
            fresh.append((self._next_group, members))
            self._next_group += 1
        everyone = [(spec.group, spec.members) for spec in staying] + fresh
        batches = group_batch_sizes(self.setting.batch_size, [len(members) for _, members in everyone])
        self.specs = {
            group: GroupSpec(group, members, batch) for (group, members), batch in zip(everyone, batches, strict=True)
        }
        keep = [step for step in self.grants.undecided_arrivals() if step.group not in self.specs]
        returned = self.grants.set_groups(self.specs.values(), keep, self.window.version)
        lost = [grant for step, grant in self.to_stage.items() if step.group not in self.specs]
        assert returned == sorted(grant.interval for grant in lost)
        self.to_stage = {step: grant for step, grant in self.to_stage.items() if step.group in self.specs}
        members_of = {group: spec.members for group, spec in self.specs.items()}
        incarnations = {member: 1 for members in members_of.values() for member in members}
        self.arrivals.set_groups(members_of, incarnations, keep)
        names = {group: list(members) for group, members in members_of.items()}
        self.entries.append(journal.GroupsChanged(TERM, names, [tuple(step) for step in keep], "test"))
        refused = self._grant()
        self._hand(GroupsChanged(frozenset(self.specs), frozenset(keep), self.now_s))
        self._arrive_all(refused)

    def open_pass(self, pass_index: int) -> None:
        self.entries.append(journal.PassOpened(TERM, pass_index, self.setting.num_rows))
        self.grants.open_pass(pass_index)
        self._arrive_all(self._grant())
        self._hand(Tick(self.now_s))

    def end_pass(self, pass_index: int) -> None:
        assert self.grants.drained()
        self.entries.append(journal.PassEnded(TERM, pass_index, {}))

    def advance(self, ms: float) -> None:
        """Time passes, and the machine is asked again."""
        self.now_s += ms / 1000
        self._hand(Tick(self.now_s))

    def report(self, grant: GiveGrant, member: str, skipped: str = "", version: int | None = None) -> ReportOutcome:
        """One member reports its share as staged."""
        outcome = self.arrivals.handle(self.staged(grant, member, skipped, version))
        if isinstance(outcome, Arrival):
            self._arrive(outcome)
        return outcome

    def stage(self, step: StepId, skipped: str = "") -> None:
        """All members of the step's group report it."""
        grant = self.to_stage[step]
        for member in self.specs[step.group].members:
            self.report(grant, member, skipped)

    def drain(self) -> None:
        """Stage whatever is granted, and let time pass, until the pass is decided."""
        for _ in range(20 * self.setting.num_rows + 100):
            if self.grants.drained():
                return
            for step in list(self.to_stage):
                if step in self.to_stage:
                    self.stage(step)
            self.advance(3000)
        raise AssertionError(f"stuck: {self.wait}")

    def staged(self, grant: GiveGrant, member: str, skipped: str = "", version: int | None = None) -> Staged:
        rank = self.specs[grant.group].members.index(member) if grant.group in self.specs else 0
        start, stop = grant.cuts[rank], grant.cuts[rank + 1]
        return Staged(
            node=member,
            incarnation=1,
            term=TERM,
            group=grant.group,
            step=grant.step,
            version=grant.version if version is None else version,
            num_samples=stop - start,
            start=start,
            stop=stop,
            servers={} if skipped else SERVERS,
            loss_sum=0.5 * (stop - start),
            skipped=skipped,
            step_ms=1.0,
            wait_ms=0.0,
        )

    # --- what the coordinator does -----------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        self.to_stage.pop(arrival.id, None)
        self.entries.append(
            journal.Arrived(
                term=TERM,
                group=arrival.group,
                step=arrival.step,
                version=arrival.version,
                pass_index=arrival.interval.pass_index,
                start=arrival.interval.start,
                stop=arrival.interval.stop,
                workers=list(arrival.workers),
                servers=dict(arrival.servers),
            )
        )
        self.grants.arrived(arrival.id)
        self._hand(StepArrived(arrival, self.now_s))

    def _hand(self, event: WindowEvent) -> None:
        while True:
            before = self.grants.round_state()
            version = self.window.version
            (command,) = self.window.handle(event, before)
            if isinstance(command, Wait):
                self.wait = command
                return
            self._check(command, before, version)
            self._carry_out(command)
            self._arrive_all(self._grant())
            event = Tick(self.now_s)

    def _carry_out(self, decision: Decide) -> None:
        self.decisions.append(decision)
        for one in decision.skipped:
            self.entries.append(journal.Skipped(TERM, one.group, one.step, one.skipped))
        if decision.contributions:
            self.entries.append(
                journal.Decided(
                    term=TERM,
                    version=decision.version,
                    steps=[tuple(one.arrival.id) for one in decision.contributions],
                    weights=[one.weight for one in decision.contributions],
                    divisor=decision.divisor,
                    step_scale=decision.step_scale,
                    dense_lr=0.1,
                    sparse_lr={},
                    reason=decision.reason,
                )
            )
        for step in decision.steps:
            self.arrivals.decided(step, decision.version)
            self.grants.decided(step, decision.version)

    def _grant(self) -> list[Arrival]:
        """Grant what can be granted; the steps that cannot be computed, as arrivals."""
        given = self.grants.grants(self.window.version)
        refused = []
        for grant in given:
            self.granted.append(grant)
            # Where steps overlap, a member reports a step only after it has pulled for the one it was told is next.
            assert self.promised.pop(grant.group, grant.interval) == grant.interval
            if self.setting.depth > 0 and grant.ahead:
                self.promised[grant.group] = grant.ahead[0].interval
            arrival = self.arrivals.expect(grant)
            if arrival is None:
                self.to_stage[StepId(grant.group, grant.step)] = grant
            else:
                refused.append(arrival)
        return refused

    def _arrive_all(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self._arrive(arrival)

    # --- what must hold of every decision ----------------------------------------------------------------------------

    def _check(self, decision: Decide, before: RoundState, version: int) -> None:
        depth, bound = self.setting.depth, self.window.max_staleness
        assert decision.steps and decision.reason
        assert len({step.group for step in decision.steps}) == len(decision.steps), "one step per group at most"
        oldest = before.oldest
        assert all(oldest[step.group].step == step.step for step in decision.steps), "and the oldest of it"
        if not decision.contributions:
            assert decision.version == version, "a window without contributions makes no version"
            return
        assert decision.version == version + 1
        groups = [one.arrival.group for one in decision.contributions]
        assert groups == sorted(groups)
        weighted = 0.0
        for one in decision.contributions:
            staleness = version - one.arrival.version
            assert staleness <= bound, f"{one.arrival.id} is {staleness} versions old, the bound is {bound}"
            assert one.staleness == max(0, staleness - depth)
            assert one.weight == self.setting.decay ** max(0, staleness - depth)
            weighted += one.weight * one.arrival.num_samples
        planned = sum(oldest_step.num_samples for oldest_step in oldest.values())
        assert decision.divisor == weighted
        assert decision.step_scale == weighted / planned
        assert 0 < decision.step_scale <= 1


def outline(decision: Decide) -> tuple[object, ...]:
    """What of a decision the servers see."""
    steps = tuple((one.arrival.id, one.arrival.interval, one.weight) for one in decision.contributions)
    skipped = tuple(one.id for one in decision.skipped)
    return (decision.version, steps, skipped, decision.divisor, decision.step_scale)
