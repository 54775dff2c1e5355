"""For tests of shares: costs as hypothesis draws them, and the best cut found by trying all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from coordinator.cost_model import CostModel
from coordinator.events import MemberCost
from coordinator.shares import ShareCut

CLOSE = 1e-6
"""Relative: what rounding may do to sums of seconds."""

NOTHING_S = 1e-9
"""Seconds: what a few samples take that cost nothing (`LEAST_SAMPLE_S` each)."""


def member(
    samples_per_s: float, *, fixed_s: float = 0.0, token_s: float = 0.0, max_samples: int | None = None
) -> MemberCost:
    return MemberCost(CostModel(fixed_s, 1.0 / samples_per_s, token_s), max_samples)


def costs(most: int = 8, *, memory: bool = False, tokens: bool = False) -> st.SearchStrategy[list[MemberCost]]:
    """Members whose speeds differ by a factor of up to 1,000; some with fixed costs, some with the least memory."""
    fixed_s = st.sampled_from([0.0, 0.0, 0.01]) | st.floats(0, 0.5)
    sample_s = st.floats(1e-4, 0.1)
    cost = st.builds(CostModel, fixed_s, sample_s)
    if tokens:
        token_s = st.floats(1e-5, 0.02)
        cost |= st.builds(CostModel, fixed_s, sample_s, token_s) | st.builds(CostModel, fixed_s, st.just(0.0), token_s)
    one = st.builds(MemberCost, cost, st.none() | st.integers(0, 40) if memory else st.none())
    return st.lists(one, min_size=1, max_size=most)


def sizes(cut: ShareCut) -> list[int]:
    return [stop - start for start, stop in pairwise(cut.cuts)]


def finishes(
    members: Sequence[MemberCost], shares: Sequence[int], tokens: NDArray[np.int64] | None = None
) -> list[float | None]:
    """When each member that has samples is done; None for the others. `tokens` are cumulative."""
    ends = np.concatenate([[0], np.cumsum(shares)])
    counts = np.diff(tokens[ends]) if tokens is not None else np.zeros(len(shares))
    return [
        one.cost.seconds(share, float(count)) if share else None
        for one, share, count in zip(members, shares, counts, strict=True)
    ]


def makespan(members: Sequence[MemberCost], shares: Sequence[int], tokens: NDArray[np.int64] | None = None) -> float:
    return max((end for end in finishes(members, shares, tokens) if end is not None), default=0.0)


def holds(one: MemberCost, share: int) -> bool:
    return one.max_samples is None or share <= one.max_samples


def least_makespan(
    total: int, members: Sequence[MemberCost], min_share: int = 0, tokens: NDArray[np.int64] | None = None
) -> float | None:
    """The best of all cuts into contiguous shares in this order; None when none is allowed."""
    allowed = [
        makespan(members, shares, tokens)
        for shares in _compositions(total, len(members))
        if all(share == 0 or share >= min_share for share in shares)
        and all(holds(one, share) for one, share in zip(members, shares, strict=True))
    ]
    return min(allowed, default=None)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
