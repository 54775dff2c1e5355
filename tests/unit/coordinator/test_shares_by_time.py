"""Shares by predicted time: exact, within memory, and so that the members finish together."""

from __future__ import annotations

from random import Random

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st
from share_support import CLOSE, costs, finishes, holds, least_makespan, makespan, member, sizes

from coordinator.cost_model import CostModel
from coordinator.events import MemberCost
from coordinator.shares import batch_sizes_by_time, cut_by_time, equal_shares_s, finishing_s
from geartrain.errors import ConfigError
from geartrain.types import Interval


def capacity(members: list[MemberCost]) -> float:
    return sum(float("inf") if one.max_samples is None else one.max_samples for one in members)


def cut(total: int, members: list[MemberCost], min_share: int = 0) -> list[int]:
    made = cut_by_time(Interval(0, 0, total), members, min_share)
    assert made.refused == ""
    return sizes(made)


# --- one group -------------------------------------------------------------------------------------------------------


@steady
@given(st.integers(0, 10_000), st.integers(0, 5000), costs(most=12, memory=True), st.sampled_from([0, 2, 3]))
def test_shares_sum_exactly_and_never_exceed_memory(
    start: int, length: int, members: list[MemberCost], min_share: int
) -> None:
    interval = Interval(0, start, start + length)
    if capacity(members) < length:
        with pytest.raises(ConfigError, match=r"training\.batch_size"):
            cut_by_time(interval, members, min_share)
        return
    made = cut_by_time(interval, members, min_share)
    shares, cuts = sizes(made), made.cuts
    assert (cuts[0], cuts[-1], len(cuts)) == (start, start + length, len(members) + 1)
    assert all(share >= 0 and holds(one, share) for one, share in zip(members, shares, strict=True))
    if not made.refused:
        assert all(share == 0 or share >= min_share for share in shares)


@steady
@given(st.integers(1, 5000), costs(most=12, memory=True))
def test_members_that_got_samples_finish_within_one_sample(length: int, members: list[MemberCost]) -> None:
    if capacity(members) < length:
        return
    shares = cut(length, members)
    ends = finishes(members, shares)
    last = makespan(members, shares)
    for one, share, end in zip(members, shares, ends, strict=True):
        if one.max_samples is None or share < one.max_samples:
            # One more would make it the last: so who got none could not have finished a first one before the others.
            assert one.cost.seconds(share + 1) >= last * (1 - CLOSE)
            if end is not None:
                assert last - end <= one.cost.sample_s + CLOSE * last


@steady
@given(st.integers(1, 9), costs(most=4, memory=True), st.sampled_from([0, 2, 3]))
def test_the_last_member_finishes_as_early_as_in_the_best_of_all_cuts(
    length: int, members: list[MemberCost], min_share: int
) -> None:
    if capacity(members) < length:
        return
    best = least_makespan(length, members, min_share)
    made = cut_by_time(Interval(0, 0, length), members, min_share)
    if best is None:
        assert "do not fit in memory in shares of" in made.refused or "left, batch norm needs" in made.refused
    else:
        assert made.refused == ""
        assert makespan(members, sizes(made)) == pytest.approx(best, rel=CLOSE)


@steady
@given(st.integers(1, 500), st.lists(st.sampled_from([2000.0, 4000.0, 500.0]), min_size=1, max_size=8))
def test_equal_members_get_equal_shares_the_first_never_less(length: int, speeds: list[float]) -> None:
    shares = cut(length, [member(speed, fixed_s=0.001) for speed in speeds])
    for speed in set(speeds):
        same = [share for share, one in zip(shares, speeds, strict=True) if one == speed]
        assert same == sorted(same, reverse=True)
        assert same[0] - same[-1] <= 1


@steady
@given(st.integers(1, 500), costs(most=6, memory=True), st.randoms(use_true_random=False))
def test_the_order_of_members_changes_nothing_but_who_of_equals_comes_first(
    length: int, members: list[MemberCost], order: Random
) -> None:
    if capacity(members) < length:
        return
    shuffled = list(members)
    order.shuffle(shuffled)
    shares = cut(length, members)
    assert makespan(shuffled, cut(length, shuffled)) == pytest.approx(makespan(members, shares), rel=1e-12)
    assert cut(length, members) == shares


def test_speeds_3_2_1_1() -> None:
    members = [member(6000), member(4000), member(2000), member(2000)]
    assert cut(4200, members) == [1800, 1200, 600, 600]
    assert sum(cut(4096, members)) == 4096
    assert cut_by_time(Interval(1, 10, 24), members).cuts == [10, 16, 20, 22, 24]


def test_fixed_costs_are_part_of_the_time() -> None:
    # 0.1 s pass at w0 before its first sample; w1 has done 100 samples by then, the other 200 are halved.
    assert cut(300, [member(1000, fixed_s=0.1), member(1000)]) == [100, 200]
    # w0 could not begin before w1 has finished everything.
    assert cut(90, [member(1000, fixed_s=0.1), member(1000)]) == [0, 90]


def test_a_member_at_its_memory_leaves_the_rest_to_the_others() -> None:
    assert cut(1000, [member(9000, max_samples=100), member(2000), member(1000)]) == [100, 600, 300]
    assert cut(10, [member(1, max_samples=10), member(9, max_samples=0)]) == [10, 0]
    assert cut(12, [member(1, max_samples=8), member(9, max_samples=4)]) == [8, 4]


def test_what_memory_cannot_hold_is_an_error_that_says_what_fits() -> None:
    with pytest.raises(ConfigError, match=r"training\.batch_size: 13 samples .*, which hold 12") as caught:
        cut_by_time(Interval(0, 0, 13), [member(1, max_samples=8), member(9, max_samples=4)])
    assert caught.value.facts == {"field": "training.batch_size", "value": 13, "expected": "at most 12"}


def test_with_batch_norm_a_slow_member_gets_two_samples_or_none() -> None:
    assert cut(10, [member(900), member(100)]) == [9, 1]
    assert cut(10, [member(900), member(100)], min_share=2) == [10, 0]
    assert cut(4, [member(1.0), member(1 / 1.5)], min_share=2) == [2, 2]
    assert cut_by_time(Interval(0, 5, 6), [member(900), member(100)], 2).refused == (
        "1 sample is left, batch norm needs 2 in a share"
    )
    two_each = [member(1, max_samples=2), member(1, max_samples=2)]
    assert cut_by_time(Interval(0, 0, 3), two_each, 2).refused == (
        "3 samples do not fit in memory in shares of 2 or more"
    )


def test_a_member_whose_time_is_all_fixed_takes_what_is_left_at_once() -> None:
    constant = MemberCost(CostModel(0.1, 0.0))
    assert cut(500, [member(1000), constant])[1] in (400, 401)  # w0 ends after 0.1 s with its last sample or before


def test_no_samples_are_no_shares() -> None:
    assert cut(0, [member(10), member(20)]) == [0, 0]


# --- several groups --------------------------------------------------------------------------------------------------


@steady
@given(st.integers(0, 2000), st.lists(costs(most=4, memory=True), min_size=1, max_size=4), st.sampled_from([0, 2]))
def test_batches_sum_exactly_and_their_groups_cut_them_to_finish_together(
    batch_size: int, groups: list[list[MemberCost]], min_share: int
) -> None:
    everyone = [one for group in groups for one in group]
    if capacity(everyone) < batch_size:
        with pytest.raises(ConfigError, match=r"training\.batch_size"):
            batch_sizes_by_time(batch_size, groups, 0.0, min_share)
        return
    batches = batch_sizes_by_time(batch_size, groups, 0.0, min_share)
    assert sum(batches) == batch_size
    whole = cut_by_time(Interval(0, 0, batch_size), everyone, min_share)
    if whole.refused:
        return
    assert all(batch == 0 or batch >= min_share for batch in batches)
    parts = [cut_by_time(Interval(0, 0, batch), group, min_share) for batch, group in zip(batches, groups, strict=True)]
    if min_share == 0:
        assert [share for part in parts for share in sizes(part)] == sizes(whole)
    ends = [makespan(group, sizes(part)) for group, part in zip(groups, parts, strict=True)]
    assert max(ends) <= makespan(everyone, sizes(whole)) * (1 + CLOSE)


def test_groups_arrive_together() -> None:
    fast, slow = [member(6000), member(4000)], [member(2000), member(2000)]
    assert batch_sizes_by_time(4200, [fast, slow]) == [3000, 1200]
    assert batch_sizes_by_time(4500, [[member(6000)] * 3, [member(3000)] * 3]) == [3000, 1500]
    assert batch_sizes_by_time(0, [fast, slow]) == [0, 0]


def test_tokens_count_in_the_batches_by_their_mean() -> None:
    # Without tokens both are alike; with 10 tokens of 0.1 ms in every sample w1 needs twice as long.
    assert batch_sizes_by_time(300, [[member(1000)], [member(1000, token_s=1e-4)]], 10.0) == [200, 100]
    assert batch_sizes_by_time(300, [[member(1000)], [member(1000, token_s=1e-4)]]) == [150, 150]


# --- the times themselves --------------------------------------------------------------------------------------------


@steady
@given(st.integers(1, 3000), costs(most=10, memory=True))
def test_the_finishing_time_is_the_least_at_which_all_is_done(batch_size: int, members: list[MemberCost]) -> None:
    if capacity(members) < batch_size:
        with pytest.raises(ConfigError, match=r"training\.batch_size"):
            finishing_s(batch_size, members)
        return
    level = finishing_s(batch_size, members)

    def done(by_s: float) -> float:
        return sum(
            min(
                max(0.0, (by_s - one.cost.fixed_s) / one.cost.sample_s),
                batch_size if one.max_samples is None else one.max_samples,
            )
            for one in members
        )

    assert done(level * (1 + CLOSE)) >= batch_size * (1 - CLOSE)
    assert done(level * (1 - CLOSE)) < batch_size
    whole = makespan(members, cut(batch_size, members))
    assert level * (1 - CLOSE) <= whole <= level + max(one.cost.sample_s for one in members) + CLOSE


def test_times_of_the_cluster_in_the_issue() -> None:
    members = [member(6000), member(4000), member(2000), member(2000)]
    assert finishing_s(14_000, members) == pytest.approx(1.0)
    assert equal_shares_s(14_000, members) == pytest.approx(1.75)
    assert finishing_s(0, members) == 0.0
    tokens = [member(1000), member(1000, token_s=1e-4)]
    assert finishing_s(300, tokens, 10.0) == pytest.approx(0.2)
    assert equal_shares_s(300, tokens, 10.0) == pytest.approx(0.3)
