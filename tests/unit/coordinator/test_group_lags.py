"""What groups need beside their members' own times, and what becomes of it in their batches."""

from __future__ import annotations

import random

import pytest

from coordinator.group_lags import MIN_STEPS, GroupLags


def lags_of(steps: dict[int, tuple[float, float]], num_steps: int = MIN_STEPS, noise: float = 0.0) -> GroupLags:
    """Groups whose steps take so long, and whose slowest member needs so long for its own part."""
    rng = random.Random(1)
    lags = GroupLags()
    for _ in range(num_steps):
        for group, (seconds, own_s) in steps.items():
            lags.add(group, seconds * (1 + noise * rng.uniform(-1, 1)), [0.9 * own_s, own_s])
    return lags


def test_a_group_that_needs_longer_than_its_members_has_a_lag() -> None:
    lags = lags_of({0: (0.5, 0.49), 1: (0.6, 0.49)})
    assert lags.lag_s(1) == 0.0, "nothing is in force before somebody looks"
    reason = lags.look([0, 1])
    assert "group 1 110" in reason
    assert (lags.lag_s(0), lags.lag_s(1)) == (pytest.approx(0.01), pytest.approx(0.11))
    assert lags.look([0, 1]) == "", "it is in force already"


def test_what_all_groups_need_alike_is_not_worth_other_batches() -> None:
    lags = lags_of({0: (0.60, 0.49), 1: (0.60, 0.495)})
    assert lags.look([0, 1]) == ""
    assert lags.lag_s(0) == 0.0


def test_one_group_alone_and_groups_that_are_new_have_none() -> None:
    assert lags_of({0: (0.9, 0.4)}).look([0]) == ""
    lags = lags_of({0: (0.9, 0.4), 1: (0.4, 0.4)}, MIN_STEPS - 1)
    assert lags.look([0, 1]) == "", "too few steps to judge"
    lags = lags_of({0: (0.9, 0.4), 1: (0.4, 0.4)})
    assert lags.look([0, 2]) == "", "group 2 has taken no step yet"


@pytest.mark.parametrize("seed", range(20))
def test_chance_moves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    lags = GroupLags()
    for _ in range(400):
        for group in (0, 1):
            lags.add(group, 0.5 * (1 + 0.05 * rng.uniform(-1, 1)), [0.5])
        assert lags.look([0, 1]) == ""


def test_waiting_for_whoever_is_slow_by_chance_is_part_of_the_lag() -> None:
    rng = random.Random(1)
    lags = GroupLags()
    for _ in range(64):
        own_s = [0.5 * rng.uniform(0.8, 1.2) for _ in range(4)]
        lags.add(0, max(own_s), own_s)
        lags.add(1, 0.5, [0.5])
    assert lags.look([0, 1])
    # The largest of four such times is 0.56 on average, that of one 0.5.
    assert lags.lag_s(0) - lags.lag_s(1) == pytest.approx(0.06, abs=0.02)


def test_members_that_are_slower_than_they_were_are_no_lag() -> None:
    lags = lags_of({0: (0.5, 0.49), 1: (0.5, 0.49)})
    for _ in range(40):
        lags.add(0, 1.5, [0.5, 1.49])
        lags.add(1, 0.5, [0.5, 0.49])
    assert lags.look([0, 1]) == ""


def test_a_lag_leaves_its_group_something_to_do() -> None:
    lags = lags_of({0: (0.5, 0.5), 1: (2.0, 0.5)})
    assert lags.look([0, 1])
    assert lags.lag_s(1) == pytest.approx(0.25), "half of the shortest step"


def test_a_lag_counts_for_no_more_than_half_of_the_fastest_step() -> None:
    lags = GroupLags()
    for _ in range(MIN_STEPS):
        lags.add(0, 0.045, [0.04])
        lags.add(1, 0.6, [0.04])
    assert lags.look([0, 1])
    assert lags.lag_s(1) == pytest.approx(0.0225)
    lags.forget()
    assert (lags.lag_s(0), lags.lag_s(1)) == (0.0, 0.0)
