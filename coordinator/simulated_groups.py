"""Who chooses the groups and shares of a simulated job: its portraits, a caller, or nobody (equal shares). Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coordinator.matching import LOOK_EVERY, Matcher, Matching, match_equally
from coordinator.portrait import Portrait
from coordinator.simulated_devices import Array, SimulatedWorker
from coordinator.simulated_job import SimulatedJob, book_of
from coordinator.simulated_progress import SimulatedProgress
from coordinator.simulated_steps import SimulatedGroup, SimulatedStep
from geartrain.wire.messages import Staged

SMALL = 0.03
"""A worker whose steps take what its portrait says, but for this part, is not observed: no portrait changes for that.
A simulation of a thousand workers would spend most of its time on steps that say nothing new."""
TIMED_EVERY = 4
"""Of so many steps of a group one is timed as a whole: for the same reason."""
ASK_FOR = 300
"""Windows after a changed portrait in which other groups are asked for: then `Regrouper` has made up its mind."""


class GroupChooser:
    """Groups of a simulated job, from the first to the last."""

    def __init__(
        self,
        workers: Sequence[SimulatedWorker],
        job: SimulatedJob,
        portraits: Sequence[Portrait],
        fixed: Sequence[tuple[str, ...]] | None = None,
        progress: SimulatedProgress | None = None,
    ) -> None:
        """`fixed`: these groups, with matched shares, whatever portraits say of them. `progress` hears of all steps."""
        self._job = job
        self._alive = [worker.name for worker in workers]
        self._fixed = fixed
        self._progress = progress
        self._matcher = Matcher(job.match, book_of(portraits, job), 0) if job.heterogeneous else None
        self._next_group = 0
        self._observed = {
            worker.name
            for worker, portrait in zip(workers, portraits, strict=True)
            if worker.card.throttle_at_s is not None or portrait.source == "set"
        }
        self._asks_until = -1
        self._granted_s: dict[int, float] = {}
        self._arrived_s: dict[int, float] = {}
        self._costs: dict[int, Array] = {}

    def first(self) -> Matching:
        """The groups that training begins with."""
        if self._matcher is None:
            return self._equal_groups()
        if self._fixed is not None:
            return self._matcher.adopt(self._fixed, "groups as asked for")
        return self._matcher.match()

    def granted(self, group: int, now_s: float) -> None:
        """The group may begin a step."""
        self._granted_s[group] = now_s

    def observe(self, group: SimulatedGroup, step: SimulatedStep, version: int, now_s: float) -> Matching | None:
        """Take in a step that arrived; other shares, where it makes a portrait change."""
        if self._progress is not None:
            self._progress.add(int(step.num_samples.sum()))
        if self._matcher is None:
            return None
        self._look(group, step)
        self._time(group, step, now_s)
        changed: Matching | None = None
        for place, worker in enumerate(group.spec.members):
            if worker not in self._observed or step.num_samples[place] == 0:
                continue
            matching = self._matcher.observe(_report(step, worker, place), now_s)
            if matching is not None:
                changed = matching
                self._costs.clear()
                self._asks_until = version + ASK_FOR
        return changed or self._matcher.rebalance(version, now_s)

    def regroup(self, version: int) -> Matching | None:
        """Other groups, with ids of their own, where they are clearly better."""
        if self._matcher is None or self._fixed is not None or version > self._asks_until:
            return None
        return self._matcher.regroup(version)

    def reshare(self, reason: str) -> Matching | None:
        """Shares by the portraits as they are, after groups have changed."""
        return self._matcher.reshare(reason) if self._matcher is not None else None

    def lost(self, workers: Sequence[str], reason: str) -> Matching:
        """The groups without workers that died; none when nobody is left."""
        self._alive = [worker for worker in self._alive if worker not in workers]
        if not self._alive:
            return Matching((), reason)
        if self._matcher is None:
            return self._equal_groups()
        return self._matcher.lost(workers, reason)

    def _equal_groups(self) -> Matching:
        matching = match_equally(self._alive, self._job.match, self._next_group)
        self._next_group += len(matching.groups)
        return matching

    def _look(self, group: SimulatedGroup, step: SimulatedStep) -> None:
        """Find members whose steps are not what their portraits say. Now and then is enough: what makes a step longer
        than predicted, jitter apart, lasts."""
        if step.grant.step % LOOK_EVERY:
            return
        number = group.spec.group
        if number not in self._costs:
            self._costs[number] = self._costs_of(group.spec.members)
        fixed_s, sample_s, token_s = self._costs[number]
        predicted_s = fixed_s + sample_s * step.num_samples + token_s * step.num_tokens
        is_off = (np.abs(step.expected_s - predicted_s) > SMALL * predicted_s) & (step.num_samples > 0)
        self._observed.update(group.spec.members[place] for place in np.flatnonzero(is_off))

    def _time(self, group: SimulatedGroup, step: SimulatedStep, now_s: float) -> None:
        """Tell the matcher how long some of the steps took."""
        number = group.spec.group
        last_s = self._arrived_s.get(number)
        self._arrived_s[number] = now_s
        if self._matcher is not None and last_s is not None and step.grant.step % TIMED_EVERY == 0:
            began_s = max(self._granted_s[number], last_s)
            self._matcher.step_took(number, now_s - began_s, step.own_s.tolist())

    def _costs_of(self, members: Sequence[str]) -> Array:
        """Fixed cost, cost of a sample and of a token of each of K members: float64[3, K]."""
        assert self._matcher is not None
        costs = self._matcher.book.costs()
        return np.array(
            [(cost.fixed_s, cost.sample_s, cost.token_s) for cost in (costs[worker].cost for worker in members)]
        ).T


def _report(step: SimulatedStep, worker: str, place: int) -> Staged:
    """What the member would report of the step, as far as portraits are concerned."""
    grant = step.grant
    return Staged(
        node=worker,
        incarnation=1,
        term=1,
        group=grant.group,
        step=grant.step,
        version=grant.version,
        num_samples=int(step.num_samples[place]),
        start=grant.cuts[place],
        stop=grant.cuts[place + 1],
        servers={},
        loss_sum=0.0,
        skipped="",
        step_ms=0.0,
        wait_ms=0.0,
        num_tokens=int(step.num_tokens[place]),
        busy_ms=float(step.own_s[place]) * 1000,
    )
