"""When the ratios of a worker's steps say that its prediction is wrong, and when they must not."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.drift import CHECK_EVERY_STEPS, NUM_RECENT, RatioWatch, Verdict

FACTORS = st.one_of(st.floats(0.3, 0.78), st.floats(1.28, 3.0))
RANDOMS = st.integers(0, 2**32).map(random.Random)
"""Not hypothesis' own: it would choose the jitter, and choose it badly."""


def jittered(rng: random.Random, num_steps: int, jitter: float, factor: float = 1.0) -> list[float]:
    return [factor * rng.uniform(1 - jitter, 1 + jitter) for _ in range(num_steps)]


def first_verdict(watch: RatioWatch, ratios: Iterable[float]) -> tuple[int, Verdict] | None:
    """The first verdict and the number of the step (from 1) that brought it."""
    for step, ratio in enumerate(ratios, start=1):
        verdict = watch.add(ratio)
        if verdict is not None:
            return step, verdict
    return None


@steady
@given(FACTORS, st.integers(0, 250), RANDOMS)
def test_a_drift_is_seen_within_40_steps(factor: float, quiet: int, rng: random.Random) -> None:
    watch = RatioWatch(100)
    assert first_verdict(watch, jittered(rng, quiet, 0.1)) is None
    seen = first_verdict(watch, jittered(rng, 40, 0.1, factor))
    assert seen is not None
    # A refresh that comes soon after the change of speed cannot know all of it: drift is what must be right.
    assert seen[1].factor == pytest.approx(factor, rel=0.09)
    assert "times its predicted step time since 24 steps" in seen[1].reason


@pytest.mark.parametrize("jitter", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(10))
def test_jitter_changes_nothing(jitter: float, seed: int) -> None:
    assert first_verdict(RatioWatch(100), jittered(random.Random(seed), 2000, jitter)) is None


@steady
@given(st.integers(0, 400), st.integers(1, 7), st.floats(3.0, 100.0), RANDOMS)
def test_a_few_slow_steps_change_nothing(quiet: int, num_slow: int, factor: float, rng: random.Random) -> None:
    ratios = [
        *jittered(rng, quiet, 0.05),
        *jittered(rng, num_slow, 0.05, factor),
        *jittered(rng, 400 - quiet, 0.05),
    ]
    assert first_verdict(RatioWatch(100), ratios) is None


def test_hiccups_that_come_again_and_again_change_nothing() -> None:
    rng = random.Random(4)
    ratios = [ratio * (10.0 if step % 9 == 0 else 1.0) for step, ratio in enumerate(jittered(rng, 2000, 0.05))]
    assert first_verdict(RatioWatch(100), ratios) is None


def test_the_second_check_in_a_row_decides() -> None:
    assert first_verdict(RatioWatch(1000), [2.0] * 100) == (
        NUM_RECENT + CHECK_EVERY_STEPS,
        Verdict(2.0, 0.0, "needs 2.0 times its predicted step time since 24 steps"),
    )


def test_off_in_one_direction_and_then_in_the_other_is_no_drift() -> None:
    """Sixteen fast steps, then slow ones: the check among both begins anew."""
    step, verdict = first_verdict(RatioWatch(1000), [0.5] * 16 + [2.0] * 40) or (0, None)
    assert verdict is not None
    assert verdict.factor == 2.0
    assert step == 16 + 2 * CHECK_EVERY_STEPS


@pytest.mark.parametrize(("factor", "is_seen"), [(1.06, True), (0.94, True), (1.02, False), (0.98, False)])
def test_a_small_deviation_is_seen_at_the_refresh_if_it_is_worth_it(factor: float, is_seen: bool) -> None:
    seen = first_verdict(RatioWatch(100), jittered(random.Random(3), 1000, 0.01, factor))
    assert (seen is not None) == is_seen
    if seen is not None:
        assert seen[0] == 100
        assert seen[1].factor == pytest.approx(factor, rel=0.01)
        assert seen[1].reason == (
            f"needed {factor:.2f} times its predicted step time, by the median of its last 100 steps"
        )


def test_a_small_deviation_within_the_noise_is_left_alone() -> None:
    """5% off with 20% of jitter: shares would follow chance."""
    assert first_verdict(RatioWatch(100), jittered(random.Random(8), 500, 0.2, 1.05)) is None
    assert first_verdict(RatioWatch(100), jittered(random.Random(8), 500, 0.02, 1.05)) is not None


def test_a_refresh_more_often_than_there_are_steps_to_judge_by_waits_for_them() -> None:
    assert first_verdict(RatioWatch(1), [1.1] * 100) == (
        NUM_RECENT,
        Verdict(1.1, 0.0, "needed 1.10 times its predicted step time, by the median of its last 16 steps"),
    )


def test_reasons_show_what_a_factor_is() -> None:
    reasons = {}
    for factor in (0.3, 0.52, 0.8, 1.25, 3.0):
        seen = first_verdict(RatioWatch(1000), [factor] * 24)
        assert seen is not None
        reasons[factor] = seen[1].reason.split()[1]
    assert reasons == {0.3: "0.3", 0.52: "0.52", 0.8: "0.80", 1.25: "1.25", 3.0: "3.0"}


def test_a_prediction_from_probes_is_looked_at_early() -> None:
    noise = random.Random(1)
    ratios = [1.04 + noise.uniform(-0.01, 0.01) for _ in range(16)]
    settled, unsettled = RatioWatch(100), RatioWatch(100, unsettled=True)
    assert [settled.add(ratio) for ratio in ratios] == [None] * 16
    verdicts = [unsettled.add(ratio) for ratio in ratios]
    assert verdicts[:15] == [None] * 15
    assert verdicts[15] is not None
    assert verdicts[15].factor == pytest.approx(1.04, abs=0.01)


def test_what_is_far_off_is_left_to_the_rule_that_looks_twice() -> None:
    watch = RatioWatch(100, unsettled=True)
    verdicts = [watch.add(2.0) for _ in range(24)]
    assert [place for place, verdict in enumerate(verdicts, start=1) if verdict is not None] == [24]
