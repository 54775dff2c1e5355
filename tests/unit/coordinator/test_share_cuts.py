"""Cuts into shares and batches: exact, contiguous, and never one sample where batch norm needs two."""

from __future__ import annotations

from itertools import pairwise

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.shares import cut_equally, group_batch_sizes, split_by_weight
from geartrain.types import Interval


def sizes(cuts: list[int]) -> list[int]:
    return [stop - start for start, stop in pairwise(cuts)]


@steady
@given(st.integers(0, 10_000), st.integers(0, 5000), st.integers(1, 12))
def test_shares_are_contiguous_exact_and_differ_by_one_at_most(start: int, length: int, num_members: int) -> None:
    cuts, refused = cut_equally(Interval(0, start, start + length), num_members)
    assert (cuts[0], cuts[-1], len(cuts), refused) == (start, start + length, num_members + 1, "")
    assert max(sizes(cuts)) - min(sizes(cuts)) <= 1


@steady
@given(st.integers(0, 60), st.integers(1, 12))
def test_with_batch_norm_no_share_is_one_sample(length: int, num_members: int) -> None:
    cuts, refused = cut_equally(Interval(0, 0, length), num_members, min_share=2)
    assert sum(sizes(cuts)) == length
    if length < 2:
        assert "left, batch norm needs 2 in a share" in refused
    else:
        assert refused == ""
        assert 1 not in sizes(cuts)
        used = [size for size in sizes(cuts) if size]
        assert max(used) - min(used) <= 1
        assert len(used) == min(num_members, length // 2)


@steady
@given(st.integers(0, 10_000), st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
def test_group_batches_sum_to_the_batch_and_follow_the_sizes(batch_size: int, group_sizes: list[int]) -> None:
    batches = group_batch_sizes(batch_size, group_sizes)
    assert sum(batches) == batch_size
    for batch, size in zip(batches, group_sizes, strict=True):
        assert abs(batch - batch_size * size / sum(group_sizes)) < 1


@steady
@given(st.integers(0, 200), st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any), st.integers(0, 5))
def test_parts_are_exact_and_zero_or_at_least_the_minimum(total: int, weights: list[int], min_part: int) -> None:
    parts = split_by_weight(total, weights, min_part)
    assert sum(parts) == total
    assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if weight == 0)
    if total >= min_part:
        assert all(part == 0 or part >= min_part for part in parts)
    else:
        assert sorted(parts)[:-1] == [0] * (len(parts) - 1)


def test_uneven_groups_of_one_cluster() -> None:
    assert group_batch_sizes(4096, [3, 2]) == [2458, 1638]
    assert group_batch_sizes(1, [1, 1]) == [1, 0]
    assert group_batch_sizes(5, [1, 1, 1], min_share=2) == [3, 2, 0]


def test_samples_that_nobody_can_take_are_an_error() -> None:
    with pytest.raises(ValueError, match="nobody can take 3 samples"):
        split_by_weight(3, [0, 0])
