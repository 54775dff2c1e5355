"""Steps in lower precisions: near fp32, in float32 where they leave the worker; and which precision is chosen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from step_samples import MEAN_SLOTS, model_of, planned_batch, rows_for, runner_of
from torch.nn.functional import binary_cross_entropy_with_logits

from dense_workers.precision import (
    FIRST_PAIRS,
    MAX_DRIFT,
    NUM_PAIRS,
    Trial,
    choose,
    loss_scale,
    relative_deviation,
    require_supported,
    trial_pairs,
)
from dense_workers.step import StepGradients
from geartrain.errors import ConfigError
from kernels.pool import pool_forward


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These tensors are tiny: a second thread only waits for a core that other tests use."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


every_model = pytest.mark.parametrize("kind", ["lr", "wide_deep", "deepfm", "dcn"])
every_low_precision = pytest.mark.parametrize("precision", ["bf16", "fp16"])


def step_in(precision: str, kind: str, num_samples: int = 256, **fields: object) -> tuple[StepGradients, np.ndarray]:
    """What a step gives, and its dense gradient (which the next step of a runner overwrites)."""
    model = model_of(kind, **fields)
    planned = planned_batch(num_samples)
    runner = runner_of(model, precision)
    gradients = runner.compute(planned, rows_for(planned, model.inputs.row_dim), 11)
    return gradients, gradients.dense.copy()


@every_model
def test_fp32_is_plain_torch_bit_by_bit(kind: str) -> None:
    model, again = model_of(kind), model_of(kind)
    planned = planned_batch(64)
    rows = rows_for(planned, model.inputs.row_dim)
    gradients = runner_of(model).compute(planned, rows, 0)
    batch = planned.batch
    pooled = torch.from_numpy(pool_forward(rows, planned.plan.inverse, batch.bag_offsets, MEAN_SLOTS, 64))
    logits = again(pooled.requires_grad_(), torch.from_numpy(batch.numeric))
    loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels), reduction="sum")
    loss.backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in again.parameters()]).numpy()
    assert gradients.dense.tobytes() == expected.tobytes()
    assert gradients.loss_sum == float(loss.detach())


@every_model
@every_low_precision
@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_lower_precision_gives_nearly_the_same_gradients_in_float32(
    kind: str, precision: str, batch_norm: bool
) -> None:
    exact, exact_dense = step_in("fp32", kind, batch_norm=batch_norm)
    low, low_dense = step_in(precision, kind, batch_norm=batch_norm)
    assert (low.grads.dtype, low_dense.dtype, low.non_finite) == (np.float32, np.float32, 0)
    assert relative_deviation(low_dense, exact_dense) < MAX_DRIFT
    assert relative_deviation(low.grads, exact.grads) < 2 * MAX_DRIFT
    assert low.loss_sum == pytest.approx(exact.loss_sum, rel=0.01)
    np.testing.assert_array_equal(low.shows, exact.shows)
    if kind != "lr":  # what has products of matrices does run in the lower precision
        assert not np.array_equal(low_dense, exact_dense)


@every_low_precision
def test_the_moments_of_batch_norm_are_sums_in_float32_and_not_scaled(precision: str) -> None:
    _, exact = step_in("fp32", "deepfm", batch_norm=True)
    _, low = step_in(precision, "deepfm", batch_norm=True)
    num_parameters = runner_of(model_of("deepfm", batch_norm=True)).num_parameters
    assert num_parameters < len(exact)
    np.testing.assert_allclose(low[num_parameters:], exact[num_parameters:], rtol=0.02, atol=1.0)


@pytest.mark.parametrize("num_samples", [1, 3, 20_000])
def test_fp16_sums_over_a_batch_of_any_size_without_overflow(num_samples: int) -> None:
    exact, exact_dense = step_in("fp32", "deepfm", num_samples)
    low, low_dense = step_in("fp16", "deepfm", num_samples)
    assert low.non_finite == 0
    assert relative_deviation(low_dense, exact_dense) < 0.02
    assert relative_deviation(low.grads, exact.grads) < 0.02


def test_fp16_keeps_the_gradient_of_samples_that_are_predicted_well() -> None:
    """Theirs is so small that fp16 has no numbers for it, unless it is scaled."""
    planned = planned_batch(3)
    planned.batch.labels[:] = 0
    gradients = {}
    for precision in ("fp32", "fp16"):
        model = model_of("wide_deep")
        with torch.no_grad():
            model.head.bias.fill_(-15.0)
        computed = runner_of(model, precision).compute(planned, rows_for(planned, model.inputs.row_dim), 0)
        gradients[precision] = computed.dense.copy()
    assert 0 < np.abs(gradients["fp32"]).max() < 1e-5
    assert relative_deviation(gradients["fp16"], gradients["fp32"]) < 0.02


def test_an_overflow_is_a_step_that_is_not_finite_and_stages_nothing() -> None:
    model = model_of("deepfm")
    planned = planned_batch(16, numeric_range=1e6)
    rows = rows_for(planned, model.inputs.row_dim)
    runner = runner_of(model, "fp16")
    overflown = runner.compute(planned, rows, 0)
    assert overflown.non_finite == 1 and not overflown.dense.any()
    runner.use_precision("fp32")
    assert runner.compute(planned, rows, 0).non_finite == 0


def test_finite_gradients_that_no_row_can_take_are_an_overflow_too() -> None:
    model = model_of("dcn")
    planned = planned_batch(16, numeric_range=1e8)
    step = runner_of(model).compute(planned, rows_for(planned, model.inputs.row_dim), 0)
    assert np.isfinite(step.grads).all() and np.isfinite(step.loss_sum)
    assert step.non_finite == 1


@every_low_precision
def test_scores_are_in_fp32_whatever_steps_are_in(precision: str) -> None:
    model = model_of("deepfm")
    planned = planned_batch(32)
    rows = rows_for(planned, model.inputs.row_dim)
    assert runner_of(model, precision).score(planned, rows).tobytes() == runner_of(model).score(planned, rows).tobytes()


@every_low_precision
def test_an_empty_share_has_empty_gradients(precision: str) -> None:
    gradients, dense = step_in(precision, "dcn", num_samples=0)
    assert (gradients.non_finite, gradients.loss_sum) == (0, 0.0) and not dense.any()


@given(st.integers(1, 10**6))
def test_the_scale_of_fp16_is_a_power_of_two_that_falls_with_the_batch(num_samples: int) -> None:
    scale = loss_scale("fp16", num_samples)
    assert np.frexp(scale)[0] == 0.5
    assert 2**12 < scale * num_samples <= 2**13
    assert loss_scale("fp32", num_samples) == loss_scale("bf16", num_samples) == 1.0


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8), st.floats(-0.5, 0.5))
def test_deviation_is_the_share_of_the_length(values: list[float], share: float) -> None:
    exact = np.array(values, dtype=np.float32)
    assert relative_deviation(exact, exact) == 0.0
    if np.linalg.norm(exact) > 1e-3:
        assert relative_deviation(exact * np.float32(1 + share), exact) == pytest.approx(abs(share), abs=1e-5)
        assert relative_deviation(np.zeros_like(exact), exact) == pytest.approx(1.0)


def test_any_deviation_from_no_gradient_is_a_whole_one() -> None:
    assert relative_deviation(np.ones(2, np.float32), np.zeros(2, np.float32)) == 1.0


def test_pairs_are_by_turns_and_the_first_is_not_counted() -> None:
    turns: list[str] = []

    def timed(name: str, seconds: float) -> float:
        turns.append(name)
        return 99.0 if len(turns) <= 2 else seconds

    pairs = trial_pairs(lambda: timed("fp32", 1.0), lambda: timed("bf16", 0.5))
    assert pairs == [(1.0, 0.5)] * NUM_PAIRS
    assert turns == ["fp32", "bf16"] * (NUM_PAIRS + 1)


def test_a_precision_without_a_gain_is_soon_left() -> None:
    pairs = trial_pairs(lambda: 1.0, lambda: 0.95)
    assert pairs == [(1.0, 0.95)] * FIRST_PAIRS
    assert choose({"bf16": Trial(pairs, 0.0)}) == "fp32"


def trial(seconds: float, drift: float = 0.01, slow: int = 0) -> Trial:
    """A step of 1 s in fp32 that takes so long in another precision, but for some pairs that took long."""
    return Trial([(1.0, seconds)] * (NUM_PAIRS - slow) + [(1.0, 3.0)] * slow, drift)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ({}, "fp32"),
        ({"bf16": trial(0.5)}, "bf16"),
        ({"bf16": trial(0.92)}, "fp32"),
        ({"bf16": trial(0.5, drift=MAX_DRIFT)}, "fp32"),
        ({"bf16": trial(0.5), "fp16": trial(0.4)}, "fp16"),
        ({"bf16": trial(0.5), "fp16": trial(0.4, drift=1.0)}, "bf16"),
        ({"bf16": trial(0.5, slow=1)}, "bf16"),
        ({"bf16": trial(0.5, slow=2)}, "fp32"),
    ],
)
def test_the_fastest_that_is_near_enough_to_fp32_is_chosen(trials: dict[str, Trial], expected: str) -> None:
    assert choose(trials) == expected


def test_a_precision_that_the_device_cannot_do_is_refused_with_the_workers_name() -> None:
    require_supported("bf16", ["fp32", "bf16"], "w3", "cuda:0")
    with pytest.raises(ConfigError, match=r"worker w3 on emulate:V100 cannot compute in bf16") as refused:
        require_supported("bf16", ["fp32", "fp16"], "w3", "emulate:V100")
    facts = {"field": "training.precision", "value": "bf16", "expected": "auto, or one of fp32, fp16", "worker": "w3"}
    assert refused.value.facts == facts
