"""Cuts of intervals into the shares of a group's members, and of the cluster's batch into those of its groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coordinator.events import MemberCost
from coordinator.natural_order import natural_key
from coordinator.token_cuts import cut_by_tokens
from coordinator.water_filling import Basin, Samples
from geartrain.errors import ConfigError
from geartrain.types import Interval

_USEFUL = 0.1
"""A share is useful when it is at least this part of an equal share."""

_WORTH_SAYING = 1.01
"""Advice that would make training faster by less is none."""
_FASTER = 1.05
"""A worker is faster than another by at least this factor; what is less may be noise."""


class ShareCut(NamedTuple):
    """Member i takes positions [cuts[i], cuts[i+1]). `refused` says why the step cannot be computed, or is empty."""

    cuts: list[int]
    refused: str


class Advice(NamedTuple):
    """What to change at a worker, in words, and the factor by which the cluster's throughput would change with it."""

    worker: str
    reason: str
    gain: float


def split_by_weight(total: int, weights: Sequence[int], min_part: int = 0) -> list[int]:
    """`total` in parts proportional to non-negative `weights`, by cumulative rounding: the sum is exactly `total`.

    With `min_part`, every part is 0 or at least that: a part that would be smaller is left out, lightest weight first
    (of equals the last), and the others share all of it. A `total` below `min_part` goes to the heaviest weight whole,
    because it cannot be split.
    """
    kept = {index for index, weight in enumerate(weights) if weight > 0}
    if total > 0 and not kept:
        raise ValueError(f"nobody can take {total} samples: all weights are zero")
    while True:
        parts = _rounded(total, [weight if index in kept else 0 for index, weight in enumerate(weights)])
        if len(kept) <= 1 or all(part == 0 or part >= min_part for part in parts):
            return parts
        kept.remove(min(kept, key=lambda index: (weights[index], -index)))


def _rounded(total: int, weights: Sequence[int]) -> list[int]:
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    # In integers, so that no sample is lost to rounding; ceilings, so that the first never has less than the others.
    ends = [-(-total * end // whole) for end in accumulate(weights, initial=0)]
    return [stop - start for start, stop in pairwise(ends)]


def cut_equally(interval: Interval, num_members: int, min_share: int = 0) -> ShareCut:
    """Contiguous shares of `interval` that differ by one sample at most.

    With `min_share` (2 with batch norm, whose moments are undefined for one sample) every share is 0 or at least that:
    the last members get nothing when there is too little for all. `refused` is set when not even one member can.
    """
    sizes = split_by_weight(interval.num_samples, [1] * num_members, min_share)
    return ShareCut(list(accumulate(sizes, initial=interval.start)), _too_few(interval.num_samples, min_share))


def _too_few(num_samples: int, min_share: int) -> str:
    """Why a step of `num_samples` cannot be computed when no share may be smaller than `min_share`; empty if it can."""
    if num_samples >= min_share:
        return ""
    left = "1 sample is" if num_samples == 1 else f"{num_samples} samples are"
    return f"{left} left, batch norm needs {min_share} in a share"


def group_batch_sizes(batch_size: int, group_sizes: Sequence[int], min_share: int = 0) -> list[int]:
    """The batch of each group, proportional to its number of members; the sum is exactly `batch_size`.

    With `min_share` a group for which less is left than that gets no batch: it could compute no step of its own.
    """
    return split_by_weight(batch_size, group_sizes, min_share)


def cut_by_time(
    interval: Interval,
    costs: Sequence[MemberCost],
    min_share: int = 0,
    cumulative_tokens: NDArray[np.int64] | None = None,
) -> ShareCut:
    """Contiguous shares of `interval`, in the order of the members, with which all finish together by their costs.

    The last member finishes as early as whole samples allow; members that got samples and are not full finish within
    one sample's cost of each other. Who could not finish one sample by then gets none. `cumulative_tokens[k]` are the
    tokens of the first k positions (length `num_samples + 1`); without them samples have no tokens.
    With `min_share` every share is 0 or at least that; `refused` is set when the interval cannot be cut so.
    Raises ConfigError when the members cannot hold the interval in memory, all together.
    """
    _check_fits(interval.num_samples, costs)
    basin = Basin.of(interval.num_samples, costs)
    refused = _too_few(interval.num_samples, min_share)
    if cumulative_tokens is not None and interval.num_samples > 0 and any(one.cost.token_s for one in costs):
        sizes = _sizes_by_tokens(basin, costs, 0 if refused else min_share, cumulative_tokens)
    else:
        sizes = basin.shares() if refused or min_share <= 1 else basin.shares_of_at_least(min_share)
    if sizes is None:
        sizes = basin.shares()
        refused = f"{interval.num_samples} samples do not fit in memory in shares of {min_share} or more"
    return ShareCut(list(accumulate(sizes.tolist(), initial=interval.start)), refused)


def _sizes_by_tokens(
    basin: Basin, costs: Sequence[MemberCost], min_share: int, cumulative_tokens: NDArray[np.int64]
) -> Samples | None:
    """Shares by tokens; who would get less than `min_share` is left out, the smallest share first."""
    token_s = np.array([one.cost.token_s for one in costs], dtype=np.float64)
    most = basin.most.copy()
    while int(most.sum()) >= basin.total:
        cuts = cut_by_tokens(cumulative_tokens, replace(basin, most=most), token_s)
        sizes: Samples = np.array(cuts[1:], dtype=np.int64) - np.array(cuts[:-1], dtype=np.int64)
        small = np.flatnonzero((sizes > 0) & (sizes < min_share))
        if small.size == 0:
            return sizes
        most[small[np.argmin(sizes[small])]] = 0
    # Memory needs all of them: by the mean, which knows how to give each of them enough.
    mean = float(cumulative_tokens[-1] - cumulative_tokens[0]) / basin.total
    return Basin.of(basin.total, costs, mean).shares_of_at_least(min_share)


def batch_sizes_by_time(
    batch_size: int,
    groups: Sequence[Sequence[MemberCost]],
    tokens_per_sample: float = 0.0,
    min_share: int = 0,
) -> list[int]:
    """The batch of each group, so that all members of all groups finish together; the sum is exactly `batch_size`.

    It is what the group's members get when the whole batch is cut among all members of all groups, so `cut_by_time`
    gives them the same again. With `min_share` a batch is 0 or at least that. Raises ConfigError when the members
    cannot hold `batch_size` samples in memory, all together.
    """
    everyone = [one for group in groups for one in group]
    _check_fits(batch_size, everyone)
    basin = Basin.of(batch_size, everyone, tokens_per_sample)
    sizes = basin.shares_of_at_least(min_share) if min_share > 1 else None
    cuts = [0, *accumulate((basin.shares() if sizes is None else sizes).tolist())]
    ends = list(accumulate((len(group) for group in groups), initial=0))
    return [cuts[stop] - cuts[start] for start, stop in pairwise(ends)]


def finishing_s(batch_size: int, costs: Sequence[MemberCost], tokens_per_sample: float = 0.0) -> float:
    """Seconds of a step of `batch_size` samples when all finish together and samples could be divided at will.

    Raises ConfigError when the members cannot hold them in memory, all together.
    """
    _check_fits(batch_size, costs)
    return Basin.of(batch_size, costs, tokens_per_sample).level_s()


def equal_shares_s(batch_size: int, costs: Sequence[MemberCost], tokens_per_sample: float = 0.0) -> float:
    """Seconds of a step of `batch_size` samples in equal shares: those of the slowest member. Memory is not asked."""
    share = batch_size / len(costs)
    return max(one.cost.seconds(share, share * tokens_per_sample) for one in costs)


def advice(
    batch_size: int, costs: Mapping[str, MemberCost], tokens_per_sample: float = 0.0, min_share: int = 0
) -> list[Advice]:
    """Who has no useful share of a step, with what leaving it out would bring, and then, of unlike workers, which one
    costs most, with what it would bring if it were as fast as the next faster one.

    Raises ConfigError when the workers cannot hold `batch_size` samples in memory, all together.
    """
    names = sorted(costs, key=natural_key)
    members = [costs[name] for name in names]
    sizes = batch_sizes_by_time(batch_size, [[one] for one in members], tokens_per_sample, min_share)
    now_s = finishing_s(batch_size, members, tokens_per_sample)
    said = []
    for at, (name, share) in enumerate(zip(names, sizes, strict=True)):
        if share >= _USEFUL * batch_size / len(names):
            continue
        others = members[:at] + members[at + 1 :]
        try:
            gain = now_s / finishing_s(batch_size, others, tokens_per_sample)
        except ConfigError:  # small as its share is, the others have no memory for it
            continue
        reason = _useless(costs[name], share, batch_size, now_s, min_share)
        said.append(
            Advice(name, f"no useful share: {reason}; without it training would be {gain:.3f} times as fast", gain)
        )
    speeds = [_alone(batch_size, one, tokens_per_sample) for one in members]
    slowest = min(range(len(names)), key=lambda at: speeds[at])
    faster = [at for at in range(len(names)) if speeds[at] >= _FASTER * speeds[slowest]]
    if faster:
        model = min(faster, key=lambda at: speeds[at])
        changed = [members[model] if at == slowest else one for at, one in enumerate(members)]
        gain = now_s / finishing_s(batch_size, changed, tokens_per_sample)
        reason = (
            f"costs most: {speeds[slowest]:.0f} samples/s alone; if it were as fast as {names[model]}, "
            f"{speeds[model]:.0f}, training would be {gain:.3f} times as fast"
        )
        if gain >= _WORTH_SAYING:
            said.append(Advice(names[slowest], reason, gain))
    return said


def _alone(batch_size: int, member: MemberCost, tokens_per_sample: float) -> float:
    """Samples per second of a member alone, in steps as large as the batch or its memory."""
    most = batch_size if member.max_samples is None else min(batch_size, member.max_samples)
    return member.cost.samples_per_s(max(1, most), tokens_per_sample)


def _useless(member: MemberCost, share: int, batch_size: int, now_s: float, min_share: int) -> str:
    if share > 0:
        return f"{share} of {batch_size} samples"
    if member.max_samples is not None and member.max_samples < max(1, min_share):
        return f"its memory holds {member.max_samples} samples"
    if member.cost.fixed_s >= now_s:
        fixed = f"{1000 * member.cost.fixed_s:.1f} ms pass in a step before its first sample"
        return f"{fixed}, and the others finish in {1000 * now_s:.1f} ms"
    return f"the others have finished in {1000 * now_s:.1f} ms, before its first samples"


def _check_fits(num_samples: int, costs: Sequence[MemberCost]) -> None:
    bounds = [one.max_samples for one in costs if one.max_samples is not None]
    if len(bounds) < len(costs) or sum(bounds) >= num_samples:
        return
    fits = sum(bounds)
    raise ConfigError(
        f"training.batch_size: {num_samples} samples of a step do not fit in the memory of its {len(costs)} worker(s), "
        f"which hold {fits} together",
        field="training.batch_size",
        value=num_samples,
        expected=f"at most {fits}",
    )
