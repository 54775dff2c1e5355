"""Shares of samples that cost unequally: contiguous, by the tokens that really lie in them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from share_support import CLOSE, NOTHING_S, costs, finishes, holds, least_makespan, makespan, member, sizes

from coordinator.events import MemberCost
from coordinator.shares import cut_by_time
from geartrain.types import Interval

TOKENS = st.integers(0, 50) | st.just(0) | st.integers(200, 1000)


def cumulative(tokens: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)


def cut(members: list[MemberCost], tokens: list[int], min_share: int = 0) -> list[int]:
    made = cut_by_time(Interval(0, 7, 7 + len(tokens)), members, min_share, cumulative(tokens))
    assert (made.cuts[0], made.cuts[-1], len(made.cuts)) == (7, 7 + len(tokens), len(members) + 1)
    assert made.refused == ""
    return sizes(made)


def fits(members: list[MemberCost], num_samples: int) -> bool:
    return sum(num_samples if one.max_samples is None else one.max_samples for one in members) >= num_samples


@steady
@given(costs(most=8, memory=True, tokens=True), st.lists(TOKENS, max_size=150))
def test_members_finish_within_their_dearest_sample_of_each_other(members: list[MemberCost], tokens: list[int]) -> None:
    check_together(members, tokens)


@steady
@given(st.integers(0, 2**32))
def test_equal_members_finish_within_the_dearest_sample_of_each_other(seed: int) -> None:
    # Drawn from a seed: what hypothesis draws is too often too simple to be hard to balance.
    draw = Random(seed)
    memory = [draw.choice([None, None, 5]) for _ in range(draw.randint(2, 6))]
    tokens = [draw.randint(5, 9) for _ in range(draw.randint(3, 40))]
    check_together([member(1e6, token_s=0.001, max_samples=most) for most in memory], tokens)


def check_together(members: list[MemberCost], tokens: list[int]) -> None:
    if not fits(members, len(tokens)):
        return
    shares = cut(members, tokens)
    ends = finishes(members, shares, cumulative(tokens))
    last = makespan(members, shares, cumulative(tokens))
    for one, share, end in zip(members, shares, ends, strict=True):
        assert share >= 0
        assert holds(one, share)
        if end is not None and share != one.max_samples:
            dearest = one.cost.sample_s + one.cost.token_s * max(tokens)
            assert last - end <= dearest + CLOSE * last + NOTHING_S


@steady
@given(costs(most=4, memory=True, tokens=True), st.lists(TOKENS, min_size=1, max_size=9))
def test_the_last_member_finishes_as_early_as_in_the_best_of_all_cuts(
    members: list[MemberCost], tokens: list[int]
) -> None:
    if not fits(members, len(tokens)):
        return
    best = least_makespan(len(tokens), members, 0, cumulative(tokens))
    assert makespan(members, cut(members, tokens), cumulative(tokens)) == pytest.approx(best, rel=CLOSE, abs=NOTHING_S)


@steady
@given(costs(most=5, tokens=True), st.lists(TOKENS, min_size=2, max_size=60), st.sampled_from([2, 3]))
def test_with_batch_norm_shares_by_tokens_are_zero_or_enough(
    members: list[MemberCost], tokens: list[int], min_share: int
) -> None:
    made = cut_by_time(Interval(0, 0, len(tokens)), members, min_share, cumulative(tokens))
    assert sum(sizes(made)) == len(tokens)
    if len(tokens) >= min_share:
        assert made.refused == ""
        assert all(share == 0 or share >= min_share for share in sizes(made))
    else:
        assert "left, batch norm needs" in made.refused


@steady
@given(costs(most=6, memory=True), st.lists(TOKENS, min_size=1, max_size=60))
def test_tokens_that_cost_nothing_change_no_finishing_time(members: list[MemberCost], tokens: list[int]) -> None:
    if not fits(members, len(tokens)):
        return
    by_count = sizes(cut_by_time(Interval(0, 0, len(tokens)), members))
    assert makespan(members, cut(members, tokens)) == pytest.approx(makespan(members, by_count), rel=CLOSE)


def test_who_draws_the_long_sequences_takes_fewer_samples() -> None:
    members = [member(1000, token_s=1e-3), member(1000, token_s=1e-3)]
    # 10 long samples of 11 ms each, then 55 short ones of 2 ms: both finish after 110 ms.
    assert cut(members, [10] * 10 + [1] * 55) == [10, 55]
    assert cut([members[0], member(2000, token_s=5e-4)], [10] * 10 + [1] * 110) == [10, 110]


def test_equal_members_are_balanced_to_the_sample() -> None:
    assert sorted(cut([member(1000)] * 4, [1] * 13)) == [3, 3, 3, 4]


def test_memory_that_needs_everybody_wins_over_the_tokens() -> None:
    # By tokens the second would get a single sample; with two at least, and no memory to spare, it gets two.
    members = [member(1000, token_s=1e-3, max_samples=3), member(1000, token_s=1e-3, max_samples=3)]
    assert cut(members, [1, 1, 1, 9]) == [3, 1]
    assert cut(members, [1, 1, 1, 9], min_share=2) == [2, 2]
    # w0 is ten times as slow on these, but must take two.
    members = [member(1000, token_s=1e-3, max_samples=3), member(1000, max_samples=4)]
    assert cut(members, [9] * 5) == [1, 4]
    assert cut(members, [9] * 5, min_share=2) == [2, 3]


def test_who_would_get_too_few_is_left_out_the_smallest_share_first() -> None:
    members = [member(speed, token_s=1 / speed) for speed in (30, 20, 50)]
    assert cut(members, [1] * 10) == [3, 2, 5]
    assert cut(members, [1] * 10, min_share=4) == [4, 0, 6]


def test_histories_of_1_to_50_on_unlike_members_end_together() -> None:
    tokens = np.random.default_rng(5).integers(1, 51, 2048).tolist()
    speeds = [6000.0, 4000.0, 2000.0, 2000.0]
    members = [member(speed, fixed_s=0.002, token_s=10 / speed / 25) for speed in speeds]
    ends = [end for end in finishes(members, cut(members, tokens), cumulative(tokens)) if end is not None]
    assert max(ends) <= 1.01 * min(ends)
    by_count = sizes(cut_by_time(Interval(0, 0, 2048), members))
    assert max(ends) < makespan(members, by_count, cumulative(tokens))
