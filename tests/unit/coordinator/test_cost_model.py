"""The cost model: recovered from noisy steps with gross outliers, and never more than the steps can tell."""

from __future__ import annotations

import random
from statistics import median

import pytest
from cluster_model import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cost_model import CostModel, StepTiming, fit_cost_model

SIZES = (64, 128, 256)
TRUTHS = st.builds(
    CostModel,
    st.sampled_from([0.0, 0.001, 0.02, 0.1]),
    st.floats(1e-5, 1e-3),
    st.sampled_from([0.0, 1e-6, 1e-5, 1e-4]),
)

RANDOMS = st.integers(0, 2**32).map(random.Random)
"""Not hypothesis' own: it would choose the noise, and choose it badly."""


def steps(
    truth: CostModel,
    rng: random.Random,
    noise: float = 0.1,
    sizes: tuple[int, ...] = SIZES,
    tokens: tuple[float, float] = (1.0, 50.0),
    per_size: int = 20,
) -> list[StepTiming]:
    """Probe steps of a device with this cost, uniform noise, and tokens per sample anywhere in the range."""
    found = []
    for num_samples in sizes:
        for _ in range(per_size):
            num_tokens = round(num_samples * rng.uniform(*tokens))
            seconds = truth.seconds(num_samples, num_tokens) * rng.uniform(1 - noise, 1 + noise)
            found.append(StepTiming(num_samples, num_tokens, seconds))
    return found


def spoiled(timings: list[StepTiming], rng: random.Random, factors: tuple[float, ...]) -> list[StepTiming]:
    """One step in ten, anywhere, takes another time altogether."""
    chosen = set(rng.sample(range(len(timings)), len(timings) // 10))
    return [
        one._replace(seconds=one.seconds * rng.choice(factors)) if place in chosen else one
        for place, one in enumerate(timings)
    ]


def worst_prediction(found: CostModel, truth: CostModel, sizes: tuple[int, ...] = SIZES, tokens: float = 25.0) -> float:
    return max(abs(found.seconds(one, one * tokens) / truth.seconds(one, one * tokens) - 1) for one in sizes)


@settings(steady, max_examples=50)
@given(TRUTHS, RANDOMS, st.sampled_from([(10.0,), (0.1,), (0.2, 3.0, 30.0)]))
def test_noisy_steps_with_gross_outliers_are_predicted(
    truth: CostModel, rng: random.Random, factors: tuple[float, ...]
) -> None:
    found, num_outliers = fit_cost_model(spoiled(steps(truth, rng), rng, factors))
    assert worst_prediction(found, truth) < 0.08
    assert 6 <= num_outliers <= 10
    assert 0.02 < found.error < 0.08


@settings(steady, max_examples=50)
@given(RANDOMS)
def test_coefficients_are_recovered(rng: random.Random) -> None:
    """A device for which all three terms are a good part of a step."""
    truth = CostModel(0.02, 0.0002, 0.00001)
    found, _ = fit_cost_model(spoiled(steps(truth, rng), rng, (10.0, 0.1)))
    assert found.fixed_s == pytest.approx(truth.fixed_s, rel=0.3)
    assert found.sample_s == pytest.approx(truth.sample_s, rel=0.3)
    assert found.token_s == pytest.approx(truth.token_s, rel=0.3)


@given(TRUTHS, RANDOMS)
@settings(steady, max_examples=50)
def test_exact_steps_give_the_exact_model(truth: CostModel, rng: random.Random) -> None:
    timings = [
        StepTiming(size, tokens, truth.seconds(size, tokens))
        for size in SIZES
        for tokens in (size, 9 * size, 30 * size)
    ]
    found, num_outliers = fit_cost_model(rng.sample(timings, len(timings)))
    assert num_outliers == 0
    assert found.error < 1e-6
    for one in timings:
        assert found.seconds(one.num_samples, one.num_tokens) == pytest.approx(one.seconds, rel=1e-6)


@settings(steady, max_examples=50)
@given(
    st.lists(
        st.builds(StepTiming, st.integers(1, 5000), st.integers(0, 200_000), st.floats(1e-6, 1e3)),
        min_size=1,
        max_size=40,
    )
)
def test_whatever_was_measured_the_model_is_one(timings: list[StepTiming]) -> None:
    """No coefficient below 0, no step free, whatever the noise; and at least half of the steps are explained."""
    found, num_outliers = fit_cost_model(timings)
    assert min(found.fixed_s, found.sample_s, found.token_s) >= 0.0
    assert all(found.seconds(one.num_samples, one.num_tokens) > 0.0 for one in timings)
    assert 0 <= num_outliers <= len(timings) // 2
    assert found.error >= 0.0


@settings(steady, max_examples=50)
@given(TRUTHS, RANDOMS)
def test_one_size_only_is_a_rate(truth: CostModel, rng: random.Random) -> None:
    found, _ = fit_cost_model(steps(truth, rng, sizes=(256,), tokens=(4.0, 4.0)))
    assert (found.fixed_s, found.token_s) == (0.0, 0.0)
    assert worst_prediction(found, truth, sizes=(256,), tokens=4.0) < 0.06


def test_one_size_with_tokens_that_vary_tells_them_apart() -> None:
    truth = CostModel(0.0, 0.0001, 0.00001)
    found, _ = fit_cost_model(steps(truth, random.Random(1), noise=0.01, sizes=(256,)))
    assert found.fixed_s == 0.0
    assert found.token_s == pytest.approx(truth.token_s, rel=0.05)
    assert found.sample_s == pytest.approx(truth.sample_s, rel=0.1)


@pytest.mark.parametrize("per_sample", [0.0, 1.0, 20.0])
def test_tokens_that_are_none_or_follow_samples_have_no_cost(per_sample: float) -> None:
    truth = CostModel(0.01, 0.0002, 0.00001)
    found, _ = fit_cost_model(steps(truth, random.Random(2), tokens=(per_sample, per_sample)))
    assert found.token_s == 0.0
    assert worst_prediction(found, truth, tokens=per_sample) < 0.03


def test_a_cost_of_tokens_that_noise_could_make_is_put_down_to_samples() -> None:
    """Tokens per sample hardly vary: their cost would be a guess, and a wild one now and then."""
    truth = CostModel(0.0, 0.0002, 0.0)
    guesses = []
    for seed in range(40):
        found, _ = fit_cost_model(steps(truth, random.Random(seed), tokens=(19.8, 20.2)))
        guesses.append(found.token_s)
        assert worst_prediction(found, truth, tokens=20.0) < 0.05
    assert median(guesses) == 0.0
    assert sum(guess == 0.0 for guess in guesses) >= 36


def test_a_single_step_is_a_rate() -> None:
    assert fit_cost_model([StepTiming(100, 500, 0.5)]) == (CostModel(0.0, pytest.approx(0.005), 0.0, 0.0), 0)


def test_steps_without_samples_or_time_count_as_left_out() -> None:
    good = [StepTiming(100, 0, 0.5), StepTiming(200, 0, 1.0), StepTiming(400, 0, 2.0)]
    bad = [StepTiming(0, 0, 0.1), StepTiming(100, 0, float("nan")), StepTiming(100, 0, 0.0), StepTiming(9, 0, -1.0)]
    found, num_outliers = fit_cost_model([*bad, *good])
    assert num_outliers == 4
    assert found.seconds(300) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="none of 4 timings"):
        fit_cost_model(bad)
    with pytest.raises(ValueError, match="none of 0 timings"):
        fit_cost_model([])


def test_prediction_scaling_and_throughput() -> None:
    model = CostModel(0.01, 0.0001, 0.00001, 0.02)
    assert model.seconds(100, 1000) == pytest.approx(0.03)
    assert model.scaled(3.0).seconds(100, 1000) == pytest.approx(0.09)
    assert model.samples_per_s(100, 10.0) == pytest.approx(100 / 0.03)


def test_cheaper_steps_lower_the_fixed_part_first() -> None:
    model = CostModel(0.3, 0.001, 0.0001, 0.02)
    less = model.cheaper(0.75, 400, 1000)
    assert (less.fixed_s, less.sample_s, less.token_s, less.error) == (pytest.approx(0.1), 0.001, 0.0001, 0.02)
    none_left = model.cheaper(0.5, 400, 1000)
    assert (none_left.fixed_s, none_left.sample_s) == (0.0, pytest.approx(0.0008))
    assert none_left.token_s / none_left.sample_s == pytest.approx(0.1)


@settings(steady, max_examples=100)
@given(TRUTHS, st.floats(0.01, 0.999), st.integers(1, 10**4), st.integers(0, 10**5))
def test_cheaper_is_right_at_that_size_and_never_bolder_than_a_factor(
    model: CostModel, factor: float, num_samples: int, num_tokens: int
) -> None:
    found = model.cheaper(factor, num_samples, num_tokens)
    assert found.seconds(num_samples, num_tokens) == pytest.approx(factor * model.seconds(num_samples, num_tokens))
    assert min(found.fixed_s, found.sample_s, found.token_s) >= 0.0
    larger = (10 * num_samples, 10 * num_tokens)
    assert found.seconds(*larger) >= model.scaled(factor).seconds(*larger) * (1 - 1e-9)
