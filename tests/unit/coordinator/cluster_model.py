"""A cluster without processes: the pure machines composed as the coordinator composes them, driven by hand.

Every grant is checked against what a share may be, and every decision against the documented arithmetic, recomputed
here from what the model itself noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median_low

import numpy as np
from cluster_setting import Costs, RepeatedTokens, Setting, shares_of, specs_of
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

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
from coordinator.usual_staleness import NUM_RECENT
from coordinator.window import WindowMachine
from geartrain.types import Interval
from geartrain.wire.messages import Staged

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests: a machine that is busy with something else fails none of them."""

SERVERS = {"s0": 11, "s1": 12}
TERM = 3


class ClusterModel:
    """`to_stage` holds the granted steps that no member has completed yet, oldest first."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.costs = setting.costs
        self.grants = GrantMachine(
            setting.num_rows,
            pipeline_depth=setting.depth,
            lookahead=setting.lookahead,
            min_share=setting.min_share,
            tokens=RepeatedTokens(setting.tokens) if setting.tokens else None,
        )
        self.window = WindowMachine(setting.window_settings)
        self.arrivals = ArrivalCollector(TERM, SERVERS)
        self.now_s = 100.0
        self.entries: list[journal.Entry] = [journal.JobStarted(TERM, "job")]
        self.decisions: list[Decide] = []
        self.granted: list[GiveGrant] = []
        self.to_stage: dict[StepId, GiveGrant] = {}
        self.promised: dict[int, Interval] = {}
        self.specs: dict[int, GroupSpec] = {}
        self.wait: Wait | None = None
        self.paused = False
        self._since_pause: Counter[int] = Counter()
        self._times_decided: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._stalenesses: list[int] = []
        self._num_workers = 0
        self._next_group = 0
        self.regroup(set(), setting.group_sizes)

    # --- what happens ------------------------------------------------------------------------------------------------

    def regroup(self, going: set[int], new_sizes: Sequence[int]) -> None:
        """Groups `going` die, new workers join in groups of these sizes; the batch is shared among all anew."""
        first, self._num_workers = self._num_workers, self._num_workers + sum(new_sizes)
        joining = [f"w{number}" for number in range(first, self._num_workers)]
        staying = [(spec.group, spec.members) for group, spec in self.specs.items() if group not in going]
        self._form([*staying, *self._new_groups(joining, new_sizes)])

    def regroup_all(self, sizes: Sequence[int]) -> None:
        """The workers that live form other groups, while nothing is in flight; then grants go on."""
        assert self.paused and self.grants.idle
        living = [member for spec in self.specs.values() for member in spec.members]
        self.paused = False
        self.grants.resume()
        self._form(self._new_groups(living, sizes))

    def reshare(self, costs: Costs) -> None:
        """The groups that live get other batches and shares, from the next grant on."""
        self.costs = costs
        self.specs = specs_of(self.setting, costs, [(spec.group, spec.members) for spec in self.specs.values()])
        keep = self.grants.undecided_arrivals()
        assert self.grants.set_groups(self.specs.values(), keep, self.window.version) == []
        batches = {group: spec.batch_size for group, spec in self.specs.items()}
        self.entries.append(journal.SharesChanged(TERM, batches, "test"))
        self._advance()

    def pause(self) -> None:
        """Grant only what was promised: groups are about to change."""
        self.paused = True
        self._since_pause.clear()
        self.grants.pause()

    def resume(self) -> None:
        """Grant again, with the groups as they are."""
        self.paused = False
        self.grants.resume()
        self._advance()

    def change_window(self, mode: str, window_ms: float | None) -> None:
        """Windows close by other settings from now on."""
        self.window.change(replace(self.window.settings, mode=mode, window_ms=window_ms))
        self._hand(Tick(self.now_s))

    def open_pass(self, pass_index: int) -> None:
        self.entries.append(journal.PassOpened(TERM, pass_index, self.setting.num_rows))
        self.grants.open_pass(pass_index)
        self._times_decided = np.zeros(self.setting.num_rows, dtype=np.int64)
        self._advance()

    def end_pass(self, pass_index: int) -> None:
        assert self.grants.drained()
        assert (self._times_decided == 1).all(), "a position that is in no window"
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

    def settle(self) -> None:
        """Stage whatever is granted, and let time pass, until nothing is in flight."""
        for _ in range(20 * self.setting.num_rows + 100):
            if self.grants.idle:
                return
            for step in list(self.to_stage):
                if step in self.to_stage:
                    self.stage(step)
            self.advance(3000)
        raise AssertionError(f"stuck: {self.wait}")

    def drain(self) -> None:
        """Go on to the end of the pass."""
        if self.paused:
            self.resume()
        self.settle()
        assert self.grants.drained()

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

    def _new_groups(self, workers: Sequence[str], sizes: Sequence[int]) -> list[tuple[int, tuple[str, ...]]]:
        """Groups of these sizes, with ids that were never used."""
        ends = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
        first, self._next_group = self._next_group, self._next_group + len(sizes)
        return [(first + place, tuple(workers[start:stop])) for place, (start, stop) in enumerate(pairwise(ends))]

    def _form(self, groups: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        self.specs = specs_of(self.setting, self.costs, groups)
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

    def _advance(self) -> None:
        self._arrive_all(self._grant())
        self._hand(Tick(self.now_s))

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
            self._check_decision(command, before, version)
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
                    most_windows=decision.most_windows,
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
            self._check_grant(grant, self.specs[grant.group])
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

    # --- what must hold of every grant and every decision ------------------------------------------------------------

    def _check_grant(self, grant: GiveGrant, spec: GroupSpec) -> None:
        if self.paused:
            self._since_pause[grant.group] += 1
            assert self._since_pause[grant.group] <= self.setting.depth, "more than what was promised"
        assert (grant.cuts[0], grant.cuts[-1]) == (grant.interval.start, grant.interval.stop)
        assert list(grant.cuts) == shares_of(self.setting, spec, grant.interval), "not by the costs in force"
        shares = [stop - start for start, stop in pairwise(grant.cuts)]
        assert len(shares) == len(spec.members) and min(shares) >= 0
        if not grant.skip:
            assert all(share == 0 or share >= self.setting.min_share for share in shares)
        if not spec.costs:
            assert max(shares) - min(share for share in shares if share or not self.setting.min_share) <= 1
        for share, one in zip(shares, spec.costs, strict=False):
            assert one.max_samples is None or share <= one.max_samples

    def _check_decision(self, decision: Decide, before: RoundState, version: int) -> None:
        assert decision.steps and decision.reason
        assert len({step.group for step in decision.steps}) == len(decision.steps), "one step per group at most"
        oldest = before.oldest
        assert all(oldest[step.group].step == step.step for step in decision.steps), "and the oldest of it"
        decided = [one.arrival for one in decision.contributions] + list(decision.skipped)
        for arrival in decided:
            positions = self._times_decided[arrival.interval.start : arrival.interval.stop]
            positions += 1
            assert (positions == 1).all(), "a position that is in two windows"
        if not decision.contributions:
            assert decision.version == version, "a window without contributions makes no version"
            return
        assert decision.version == version + 1
        groups = [one.arrival.group for one in decision.contributions]
        assert groups == sorted(groups)
        weighted = self._weighted(decision, version)
        planned = sum(step.num_samples for step in oldest.values())
        assert decision.divisor == weighted
        assert decision.step_scale == (weighted / planned if self.setting.step_scale else 1.0)
        assert 0 < decision.step_scale <= 1
        num_samples = sum(one.arrival.num_samples for one in decision.contributions)
        assert decision.most_windows == (planned / num_samples if self.setting.step_scale else 1.0) >= 1

    def _weighted(self, decision: Decide, version: int) -> float:
        """The samples of the window by their weights.

        Each decays with the versions beyond the depth, and beyond what was usual before.
        """
        weighted = 0.0
        usual = median_low(self._stalenesses[-NUM_RECENT:] or [0])
        for one in decision.contributions:
            staleness = version - one.arrival.version
            assert staleness <= self.window.max_staleness, f"{one.arrival.id} is {staleness} versions old"
            assert one.staleness == max(0, staleness - self.setting.depth)
            assert one.weight == self.setting.decay ** max(0, staleness - max(self.setting.depth, usual))
            self._stalenesses.append(staleness)
            weighted += one.weight * one.arrival.num_samples
        return weighted


def outline(decision: Decide) -> tuple[object, ...]:
    """What of a decision the servers see."""
    steps = tuple((one.arrival.id, one.arrival.interval, one.weight) for one in decision.contributions)
    skipped = tuple(one.id for one in decision.skipped)
    return (decision.version, steps, skipped, decision.divisor, decision.step_scale, decision.most_windows)
