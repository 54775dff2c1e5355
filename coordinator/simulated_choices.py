"""What other groups, shares and windows would give: the same cluster, simulated again for a while. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from coordinator.grouping import Candidate, Groups, partition_cost
from coordinator.natural_order import natural_key
from coordinator.portrait import Portrait
from coordinator.simulated_devices import SimulatedWorker
from coordinator.simulated_groups import GroupChooser
from coordinator.simulated_job import SimulatedJob
from coordinator.simulated_progress import Observe, SimulatedProgress
from coordinator.simulator import SimulatedRun, Simulation
from coordinator.window import WindowSettings

MAX_STEPS = 200
"""Batches that each choice is simulated for, at most."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to train on the cluster, and what came of it."""

    name: str
    num_groups: int
    run: SimulatedRun


def compare_choices(
    workers: Sequence[SimulatedWorker],
    job: SimulatedJob,
    portraits: Sequence[Portrait],
    groups: Groups,
    seed: int,
    observe: Observe | None = None,
) -> list[Choice]:
    """The choice that was made, which begins with `groups`, first; then others.

    Equal shares are those of `--no-heterogeneous`: one group of all, whatever their vendors. `observe` hears how far
    each simulation is.
    """
    short = replace(job, num_samples=min(job.num_samples, MAX_STEPS * job.match.batch_size))

    def run(name: str, changed: SimulatedJob, fixed: Groups | None) -> Choice:
        progress = SimulatedProgress(name, changed.num_samples, observe)
        done = Simulation(workers, changed, GroupChooser(workers, changed, portraits, fixed, progress), seed).run()
        return Choice(name, len(fixed) if fixed is not None else len(done.groups), done)

    equally = replace(short, heterogeneous=False, match=replace(short.match, group_size=None))
    matched = replace(short, heterogeneous=True)
    chosen = run("as chosen", short, groups if job.heterogeneous else None)
    choices = [chosen, run("equal shares in one group", equally, None)]
    candidates = _candidates(portraits, job)
    choices += [run(name, matched, other) for name, other in _other_groups(groups, candidates, job.heterogeneous)]
    if len(groups) > 1:
        for name, window in _other_windows(job.window).items():
            choices.append(run(name, replace(short, window=window), groups))
    return choices


def _candidates(portraits: Sequence[Portrait], job: SimulatedJob) -> list[Candidate]:
    tokens, typical = job.match.tokens_per_sample, max(1, job.match.batch_size // len(portraits))
    return [Candidate(one.worker, one.model, one.vendor, one.cost.samples_per_s(typical, tokens)) for one in portraits]


def _other_windows(window: WindowSettings) -> dict[str, WindowSettings]:
    """Windows that close otherwise."""
    windows = {"window of 0 ms": replace(window, mode="hybrid", window_ms=0.0)}
    if window.mode != "sync":
        windows["every window waits for all (sync)"] = replace(window, mode="sync")
    return windows


def _other_groups(groups: Groups, candidates: Sequence[Candidate], heterogeneous: bool) -> list[tuple[str, Groups]]:
    """Other partitions, each with matched shares."""
    together = merge_all(candidates)
    others = [("one group with matched shares" if len(together) == 1 else "one group per vendor", together)]
    if heterogeneous:
        fewer, more = one_fewer(groups, candidates), one_more(groups, candidates)
        if fewer is not None and len(fewer) > len(together):
            others.append(("one group fewer", fewer))
        if more is not None:
            others.append(("one group more", more))
    return [(name, other) for name, other in others if not heterogeneous or set(other) != set(groups)]


def merge_all(candidates: Sequence[Candidate]) -> Groups:
    """One group per vendor."""
    vendors = sorted({one.vendor for one in candidates})
    return tuple(_named([one.worker for one in candidates if one.vendor == vendor]) for vendor in vendors)


def one_fewer(groups: Groups, candidates: Sequence[Candidate]) -> Groups | None:
    """The cheapest partition in which two groups of one vendor are one; None where there are no two."""
    vendor = {one.worker: one.vendor for one in candidates}
    merged = [
        (*(group for group in groups if group not in pair), _named(pair[0] + pair[1]))
        for pair in combinations(groups, 2)
        if vendor[pair[0][0]] == vendor[pair[1][0]]
    ]
    return min(merged, key=lambda one: partition_cost(one, candidates), default=None)


def one_more(groups: Groups, candidates: Sequence[Candidate]) -> Groups | None:
    """The cheapest partition in which one group is cut in two where its speeds are furthest apart; None where all are
    groups of one."""
    speed = {one.worker: one.samples_per_s for one in candidates}
    cut: list[Groups] = []
    for group in groups:
        if len(group) < 2:
            continue
        by_speed = sorted(group, key=lambda worker: (-speed[worker], natural_key(worker)))
        least = 2 if len(group) >= 4 else 1

        def gap(at: int, order: Sequence[str] = by_speed) -> tuple[float, int]:
            # Of equal gaps the one nearest to the middle.
            return round(speed[order[at - 1]] - speed[order[at]], 9), -abs(2 * at - len(order))

        at = max(range(least, len(group) - least + 1), key=gap)
        cut.append((*(one for one in groups if one != group), _named(by_speed[:at]), _named(by_speed[at:])))
    return min(cut, key=lambda one: partition_cost(one, candidates), default=None)


def _named(workers: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(workers, key=natural_key))
