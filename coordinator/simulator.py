"""A job on a simulated cluster: the coordinator's own machines, driven by a virtual clock. Pure.

Grants, windows, shares, groups and portraits are those of a real run; only time passes otherwise: a heap of events
stands for the workers, which are numbers (`simulated_steps`). What is left out: the model and its numbers, servers
whose work gets in each other's way, and pulls that are answered with a newer version than they asked for.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from coordinator.events import Arrival, Decide, GroupsChanged, StepArrived, Tick, Wait, WindowEvent
from coordinator.grants import GiveGrant, GrantMachine
from coordinator.intervals import IntervalSet
from coordinator.matching import Matching
from coordinator.simulated_devices import Members, SimulatedWorker
from coordinator.simulated_groups import GroupChooser
from coordinator.simulated_job import SimulatedJob
from coordinator.simulated_steps import CAUSES, DEATHS, OVERHEAD, PASS_END, REGROUPING, SimulatedGroup, SimulatedStep
from coordinator.window import WindowMachine
from geartrain.errors import ConservationError, GeartrainError
from geartrain.types import Interval


@dataclass(slots=True)
class SimulatedRun:
    """What came of a simulation. `spent` is float64[C, W]: seconds of each worker by cause (`CAUSES`); `groups` are the
    last ones."""

    seconds: float
    samples: int
    samples_skipped: int
    version: int
    staleness: Counter[int]
    spent: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    worker_samples: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    groups: list[SimulatedGroup]
    first_groups: tuple[tuple[str, ...], ...] = ()
    events: list[tuple[float, str]] = field(default_factory=list)

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0


class Simulation:
    """One job, from its first grant to its last window. `run` it once."""

    def __init__(self, workers: Sequence[SimulatedWorker], job: SimulatedJob, chooser: GroupChooser, seed: int) -> None:
        self._workers = workers
        self._job = job
        self._chooser = chooser
        self._random = np.random.default_rng([seed, 0])
        self._places = {worker.name: place for place, worker in enumerate(workers)}
        self._grants = GrantMachine(
            job.num_rows,
            pipeline_depth=job.window.pipeline_depth,
            min_share=job.match.min_share,
            tokens=job.around.tokens,
        )
        self._window = WindowMachine(job.window)
        self._groups: dict[int, SimulatedGroup] = {}
        self._now_s = 0.0
        self._applied_s = 0.0
        self._wake_at_s: float | None = None
        self._heap: list[tuple[float, int, SimulatedStep | str | None]] = []
        self._num_events = 0
        self._regrouping: Matching | None = None
        self._done = IntervalSet(0)
        self.result = SimulatedRun(
            seconds=0.0,
            samples=0,
            samples_skipped=0,
            version=0,
            staleness=Counter(),
            spent=np.zeros((len(CAUSES), len(workers))),
            worker_samples=np.zeros(len(workers)),
            groups=[],
        )

    def run(self) -> SimulatedRun:
        """Train to the end. Raises GeartrainError when all workers have died, and ConservationError when a sample was
        lost or came twice: then a machine of the coordinator is wrong."""
        first = self._chooser.first()
        self.result.first_groups = tuple(spec.members for spec in first.groups)
        self._note(first.reason)
        self._now_s = self._job.around.overheads.first_step_ms / 1000
        self.result.spent[OVERHEAD] += np.minimum(self._now_s, Members(self._workers).dies_at_s)
        self._set_groups(first, REGROUPING)
        for worker in self._workers:
            if worker.dies_at_s is not None:
                self._push(worker.dies_at_s + self._job.around.overheads.lease_s, worker.name)
        pass_index = 0
        while self._num_left > 0:
            self._run_pass(pass_index)
            pass_index += 1
        for group in self._groups.values():
            self._close(group, PASS_END)
        self.result.groups = list(self._groups.values())
        self.result.seconds = self._now_s
        self.result.version = self._window.version
        return self.result

    # --- passes and events -------------------------------------------------------------------------------------------

    @property
    def _num_left(self) -> int:
        return self._job.num_samples - self.result.samples - self.result.samples_skipped

    def _run_pass(self, pass_index: int) -> None:
        num_rows = self._job.num_rows
        left = min(num_rows, self._num_left)
        cut_off = [Interval(pass_index, left, num_rows)]  # the last pass ends with the last batch that is asked for
        self._done = IntervalSet(pass_index, cut_off)
        self._grants.open_pass(pass_index, cut_off)
        self._advance()
        while not self._grants.drained():
            self._next_event()
        for lost in self._done.missing(num_rows):
            raise ConservationError(
                f"pass {pass_index} ends without {lost.start} to {lost.stop}",
                pass_index=pass_index,
                start=lost.start,
                stop=lost.stop,
            )
        # The pass is over when the servers have confirmed its last window.
        self._now_s = max(self._now_s, self._applied_s + self._job.around.half_trip_s)

    def _next_event(self) -> None:
        if not self._heap:
            raise GeartrainError(f"nothing will ever happen after {self._now_s:.3f} s: {self._reason()}")
        at_s, _, what = heapq.heappop(self._heap)
        self._now_s = max(self._now_s, at_s)
        if isinstance(what, SimulatedStep):
            self._reported(what)
        elif isinstance(what, str):
            self._missed(what)
        elif self._wake_at_s is not None and self._now_s >= self._wake_at_s:
            self._decide_all(Tick(self._now_s))
        self._regroup()

    def _reason(self) -> str:
        return str(self._window.snapshot(self._now_s)["reason"])

    def _push(self, at_s: float, what: SimulatedStep | str | None) -> None:
        self._num_events += 1  # events of one time happen in the order in which they became known
        heapq.heappush(self._heap, (at_s, self._num_events, what))

    def _note(self, reason: str) -> None:
        self.result.events.append((self._now_s, reason))

    # --- steps -------------------------------------------------------------------------------------------------------

    def _reported(self, step: SimulatedStep) -> None:
        """All members have reported the step, unless its group was given up before."""
        group = self._groups.get(step.grant.group)
        if group is None or step.grant.step not in group.steps:
            return
        group.account(step)
        matching = self._chooser.observe(group, step, self._window.version, self._now_s)
        self._arrived(_arrival(step.grant, group.spec.members, int(step.num_samples.sum())))
        if matching is not None and self._regrouping is None:
            self._change_shares(matching)

    def _arrived(self, arrival: Arrival) -> None:
        self._grants.arrived(arrival.id)
        self._decide_all(StepArrived(arrival, self._now_s))

    def _advance(self) -> None:
        self._give_grants()
        self._decide_all(Tick(self._now_s))

    def _decide_all(self, event: WindowEvent) -> None:
        (command,) = self._window.handle(event, self._grants.round_state())
        while isinstance(command, Decide):
            self._carry_out(command)
            self._give_grants()
            (command,) = self._window.handle(Tick(self._now_s), self._grants.round_state())
        until_s = command.until_s if isinstance(command, Wait) else None
        if until_s is not None and until_s != self._wake_at_s:
            self._push(until_s, None)
        self._wake_at_s = until_s

    def _carry_out(self, decision: Decide) -> None:
        num_rows = 0.0
        for one in decision.contributions:
            self._done.add(one.arrival.interval)
            self.result.samples += one.arrival.num_samples
        self.result.staleness.update(one.staleness for one in decision.contributions)
        for skipped in decision.skipped:
            self._done.add(skipped.interval)
            self.result.samples_skipped += skipped.num_samples
        for step in decision.steps:
            self._grants.decided(step, decision.version)
            group = self._groups.get(step.group)
            if group is not None and step.step in group.steps:
                num_rows += group.steps.pop(step.step).num_pushed
                group.decided_s = self._now_s
        if decision.contributions:
            self._applied_s = self._now_s + self._job.around.apply_s(num_rows)

    def _give_grants(self) -> None:
        refused: list[Arrival] = []
        for grant in self._grants.grants(self._window.version):
            group = self._groups[grant.group]
            if grant.skip:
                refused.append(_arrival(grant, (), grant.interval.num_samples))
                continue
            self._chooser.granted(grant.group, self._now_s)
            for step, at_s in group.grant(grant, self._now_s, self._applied_s):
                self._push(at_s, step)
        for arrival in refused:
            self._arrived(arrival)

    # --- groups ------------------------------------------------------------------------------------------------------

    def _change_shares(self, matching: Matching) -> None:
        self._note(matching.reason)
        # Steps of groups that have gone may still wait for their decision.
        self._grants.set_groups(matching.groups, self._grants.undecided_arrivals(), self._window.version)
        for spec in matching.groups:
            self._groups[spec.group].spec = spec
        self._advance()

    def _regroup(self) -> None:
        """Form other groups, if they are better now, once nothing is in flight."""
        if self._regrouping is None:
            self._regrouping = self._chooser.regroup(self._window.version)
            if self._regrouping is None:
                return
            self._grants.pause()
        if not self._grants.idle:
            return
        matching, self._regrouping = self._regrouping, None
        self._grants.resume()
        self._note(matching.reason)
        self._set_groups(matching, REGROUPING)
        self._advance()
        changed = self._chooser.reshare("portraits as they are now")
        if changed is not None:
            self._change_shares(changed)

    def _missed(self, worker: str) -> None:
        """The lease of a worker that died is over, and of those that died with it: their groups go on without them."""
        missed = [worker]
        while self._heap and self._heap[0][0] <= self._now_s and isinstance(name := self._heap[0][2], str):
            missed.append(name)
            heapq.heappop(self._heap)
        lease_s = self._job.around.overheads.lease_s
        matching = self._chooser.lost(missed, f"{', '.join(missed)} died {lease_s:g} s ago")
        if not matching.groups:
            raise GeartrainError(f"all workers have died after {self._now_s:.3f} s", workers=missed)
        self._regrouping = None
        self._grants.resume()
        self._note(matching.reason)
        self._set_groups(matching, DEATHS)
        self._advance()

    def _set_groups(self, matching: Matching, cause: int) -> None:
        """Make these the live groups. Arrived steps of the others are kept; what else they did is lost."""
        keep = self._grants.undecided_arrivals()
        self._grants.set_groups(matching.groups, keep, self._window.version)
        live = frozenset(spec.group for spec in matching.groups)
        begin_s = self._now_s + (self._job.around.overheads.regroup_s if self._groups else 0.0)
        for number in [number for number in self._groups if number not in live]:
            self._close(self._groups.pop(number), cause, begin_s)
        for spec in matching.groups:
            if spec.group in self._groups:
                self._groups[spec.group].spec = spec
                continue
            members = [self._workers[self._places[name]] for name in spec.members]
            places = np.array([self._places[name] for name in spec.members])
            self._groups[spec.group] = SimulatedGroup(
                spec, places, Members(members), self._job.around, begin_s, self._random
            )
        self._decide_all(GroupsChanged(live, frozenset(keep), self._now_s))

    def _close(self, group: SimulatedGroup, cause: int, until_s: float | None = None) -> None:
        group.close(self._now_s if until_s is None else until_s, cause)
        self.result.spent[:, group.workers] += group.spent
        self.result.worker_samples[group.workers] += group.samples


def _arrival(grant: GiveGrant, workers: Iterable[str], num_samples: int) -> Arrival:
    return Arrival(
        group=grant.group,
        step=grant.step,
        version=grant.version,
        interval=grant.interval,
        num_samples=num_samples,
        workers=tuple(workers),
        servers={},
        loss_sum=0.0,
        skipped=grant.skip,
    )
