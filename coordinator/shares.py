"""Cuts of intervals into the shares of a group's members, and of the cluster's batch into those of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from geartrain.types import Interval


class ShareCut(NamedTuple):
    """Member i takes positions [cuts[i], cuts[i+1]). `refused` says why the step cannot be computed, or is empty."""

    cuts: list[int]
    refused: str


def split_by_weight(total: int, weights: Sequence[int], min_part: int = 0) -> list[int]:
    """`total` in parts proportional to non-negative `weights`, by cumulative rounding: the sum is exactly `total`.

    With `min_part`, every part is 0 or at least that: a part that would be smaller is left out, lightest weight first
    (of equals the last), and the others share all of it. A `total` below `min_part` goes to the heaviest weight whole,
    because it cannot be split.
    """
    kept = [index for index, weight in enumerate(weights) if weight > 0]
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
    cuts = list(accumulate(sizes, initial=interval.start))
    if interval.num_samples < min_share:
        left = "1 sample is" if interval.num_samples == 1 else f"{interval.num_samples} samples are"
        return ShareCut(cuts, f"{left} left, batch norm needs {min_share} in a share")
    return ShareCut(cuts, "")


def group_batch_sizes(batch_size: int, group_sizes: Sequence[int], min_share: int = 0) -> list[int]:
    """The batch of each group, proportional to its number of members; the sum is exactly `batch_size`.

    With `min_share` a group for which less is left than that gets no batch: it could compute no step of its own.
    """
    return split_by_weight(batch_size, group_sizes, min_share)
