"""Sync groups of unlike workers: like with like, so that nobody in a group waits, and few of them, because steps of
different groups build on versions that are not the same. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import fsum

import numpy as np
from numpy.typing import NDArray

from coordinator.natural_order import natural_key
from geartrain.errors import ConfigError

Groups = tuple[tuple[str, ...], ...]

GROUP_PRICE = 0.05
"""What one more group must save: the part of the cluster that would idle. It stands for the staleness it brings."""

REGROUP_GAIN = 0.05
"""What other groups must save, in the same measure, before the cluster is regrouped: regrouping costs a round."""

REGROUP_AFTER_STEPS = 100
"""Steps that new groups are given before they are doubted."""

_TIE = 12
"""Costs that agree in so many decimals are equal: sums in another order differ by less."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker to be grouped: its device's model and vendor, and its throughput alone."""

    worker: str
    model: str
    vendor: str
    samples_per_s: float


@dataclass(frozen=True, slots=True)
class Partition:
    """Sync groups, the fastest first, members in natural order of their names; `cost` as `partition` defines it."""

    groups: Groups
    cost: float
    reason: str


def partition(candidates: Sequence[Candidate], group_size: int | None = None, price: float = GROUP_PRICE) -> Partition:
    """The best sync groups for these workers.

    The cost of a partition is the part of the cluster that would idle if members of a group had equal shares, the sum
    of (speed - slowest speed of its group) over the sum of all speeds, plus `price` for every group beyond one a
    vendor. Vendors are never mixed; a vendor has at most as many groups as device models; groups have two workers or
    more (a vendor's only worker is a group of one), so a lone model joins the nearest. Of equal costs the one with
    fewer groups wins, then the one with more workers in its faster groups; of equally fast workers the name decides.

    With `group_size`, groups are of that size in the order of speed, the last of a vendor takes the rest, and 1 makes
    every worker a group. Raises ConfigError when it is below 1.
    """
    if group_size is not None and group_size < 1:
        raise ConfigError("sync.group_size must be at least 1", field="sync.group_size", value=group_size, expected="1")
    by_vendor = sorted(candidates, key=lambda one: (one.vendor, -one.samples_per_s, natural_key(one.worker)))
    whole = sum(one.samples_per_s for one in by_vendor)
    groups: list[list[Candidate]] = []
    for _, members in groupby(by_vendor, key=lambda one: one.vendor):
        same = list(members)
        ends = (
            _ends(same, whole, price) if group_size is None else [*range(group_size, len(same), group_size), len(same)]
        )
        groups += [same[start:stop] for start, stop in zip([0, *ends[:-1]], ends, strict=True)]
    groups.sort(key=lambda group: (-sum(one.samples_per_s for one in group) / len(group), natural_key(group[0].worker)))
    named = tuple(tuple(sorted((one.worker for one in group), key=natural_key)) for group in groups)
    return Partition(named, partition_cost(named, candidates, price), _reason(groups, group_size, whole))


def partition_cost(groups: Groups, candidates: Sequence[Candidate], price: float = GROUP_PRICE) -> float:
    """The cost of any partition of all `candidates`, as `partition` defines it."""
    speed = {one.worker: one.samples_per_s for one in candidates}
    slowest = [min(speed[worker] for worker in members) for members in groups]
    # fsum: the same whatever the order of the workers.
    idle = fsum(speed[worker] - least for members, least in zip(groups, slowest, strict=True) for worker in members)
    return (idle / fsum(speed.values()) if idle else 0.0) + price * (len(groups) - _num_vendors(candidates))


def _num_vendors(candidates: Sequence[Candidate]) -> int:
    return len({one.vendor for one in candidates})


def _ends(members: list[Candidate], whole: float, price: float) -> list[int]:
    """Where the groups of one vendor's workers end, fastest first: the best cuts of the sorted speeds.

    A partition that is not contiguous in the speeds is never better: with groups of the same sizes in the order of
    their slowest members, each contiguous group's slowest is at least as fast.
    """
    speeds = np.array([one.samples_per_s for one in members])
    count = len(members)
    least = min(2, count)
    idle_of_one = float((speeds - speeds[-1]).sum()) / whole
    most = min(len({one.model for one in members}), count // least)
    if price > 0:  # more groups than that cost more than they could save
        most = min(most, 1 + int(idle_of_one / price))
    if most == 1:
        return [count]
    # Equally fast workers are divided by a cut only where the slower group needs one of them to have two.
    last = np.flatnonzero(np.diff(speeds)) + 1
    at = np.unique(np.concatenate([[0], last - 1, last, [count]]))
    # idle[j, i]: the workers at[j] to at[i] as one group; infinite when there are too few of them.
    upto = np.concatenate([[0.0], np.cumsum(speeds)])[at]
    size = at[None, :] - at[:, None]
    slowest = np.concatenate([[0.0], speeds])[at]
    idle = np.where(size >= least, (upto[None, :] - upto[:, None] - size * slowest[None, :]) / whole, np.inf)
    best = idle[0]
    begins: list[NDArray[np.intp]] = []
    costs = [float(best[-1])]
    for number in range(1, most):
        through = np.round(best[:, None] + idle, _TIE)
        begin = len(at) - 1 - np.argmin(through[::-1], axis=0)  # the last of equals: more workers in faster groups
        best = np.take_along_axis(through, begin[None, :], axis=0)[0]
        begins.append(begin)
        costs.append(float(best[-1]) + price * number)
    place = len(at) - 1
    ends = [place]
    for begin in reversed(begins[: int(np.argmin(np.round(costs, _TIE)))]):
        place = int(begin[place])
        ends.append(place)
    return [int(at[end]) for end in reversed(ends)]


def _reason(groups: list[list[Candidate]], group_size: int | None, whole: float) -> str:
    if not groups:
        return "no workers"
    if group_size is None:
        how = "the best by their speeds"
    elif group_size >= sum(len(group) for group in groups):
        how = "one for each vendor"
    else:
        how = f"of {group_size} by hand"
    slowest = [min(one.samples_per_s for one in group) for group in groups]
    idle = sum(one.samples_per_s - least for group, least in zip(groups, slowest, strict=True) for one in group)
    return f"{_counted(len(groups))}, {how}: equal shares inside would idle {100 * idle / whole:.1f}% of the cluster"


def _is_of(groups: Groups, candidates: Sequence[Candidate]) -> bool:
    """Whether these are groups of exactly these workers."""
    return {name for group in groups for name in group} == {one.worker for one in candidates}


def _counted(num_groups: int) -> str:
    return "1 group" if num_groups == 1 else f"{num_groups} groups"


class Regrouper:
    """Decides when groups that were right once are no longer: hysteresis, so that noise in the speeds moves nobody."""

    def __init__(self, last_step: int | None = None) -> None:
        """`last_step`: when groups were formed anew last, if they were."""
        self._wanted: Groups | None = None
        self._last_step = last_step

    def consider(self, current: Groups, candidates: Sequence[Candidate], step: int) -> Partition | None:
        """Other groups for the same workers, if `current` should be given up now at `step`; the caller forms them.

        They must be cheaper by `REGROUP_GAIN` at two looks in a row, by the speeds of each of them, and
        `REGROUP_AFTER_STEPS` after the last regrouping. When workers have come or gone the best groups are returned
        at once.
        """
        best = partition(candidates)
        if not _is_of(current, candidates):
            return self._regroup(best, step, f"workers have come or gone: {best.reason}")
        cost = partition_cost(current, candidates)
        wanted, self._wanted = self._wanted, None
        if wanted is not None and not _is_of(wanted, candidates):
            wanted = None  # they were wanted before workers came or went
        if cost - best.cost < REGROUP_GAIN:
            return None
        seen = partition_cost(wanted, candidates) if wanted is not None else cost
        if wanted is None or cost - seen < REGROUP_GAIN or seen - best.cost >= REGROUP_GAIN:
            self._wanted = best.groups  # the first look at these
            return None
        if self._last_step is not None and step - self._last_step < REGROUP_AFTER_STEPS:
            self._wanted = wanted
            return None
        beyond = _num_vendors(candidates)
        before, after = (
            f"{_counted(len(groups))} that idle {100 * (price - GROUP_PRICE * (len(groups) - beyond)):.1f}%"
            for groups, price in ((current, cost), (wanted, seen))
        )
        reason = f"with equal shares inside, the cluster had {before} of it and now has {after}, at two looks in a row"
        return self._regroup(Partition(wanted, seen, reason), step, reason)

    def _regroup(self, found: Partition, step: int, reason: str) -> Partition:
        self._wanted = None
        self._last_step = step
        return replace(found, reason=reason)
