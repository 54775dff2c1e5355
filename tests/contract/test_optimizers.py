"""The optimizers against float64 written from the papers, and against torch.optim, over many random steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from contract_samples import assert_same, floats, many
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from geartrain.errors import KernelError
from geartrain.types import Floats, Keys
from kernels.dense_update import NUM_DENSE_STATES, apply_dense
from kernels.initializer import Initializer, initial_rows
from kernels.reference import dense_update as reference
from kernels.row_store import RowStore, UpdateRule
from kernels.update_rule import DENSE_KINDS, SPARSE_KINDS

NUM_ROWS, DIM, NUM_STEPS = 40, 9, 150
NORMAL = Initializer("normal", 0.3, 11)
KEYS: Keys = np.arange(NUM_ROWS, dtype=np.uint64)
Doubles = NDArray[np.float64]


def in_double(kind: str, p: Doubles, state: dict[str, Doubles], sums: Doubles, rule: UpdateRule) -> None:
    """One update of rows `p` [N, D] in float64, as the papers write it."""
    grad = sums / rule.divisor + rule.l2 * p
    if kind == "sgd":
        direction = grad
    elif kind == "adagrad":
        state["sum"] += grad**2
        direction = grad / (np.sqrt(state["sum"]) + rule.eps)
    elif kind == "rowwise_adagrad":
        state["sum"] += (grad**2).mean(axis=1, keepdims=True)
        direction = grad / (np.sqrt(state["sum"]) + rule.eps)
    else:
        state["first"] += (1 - rule.beta1) * (grad - state["first"])
        state["second"] += (1 - rule.beta2) * (grad**2 - state["second"])
        correction = np.sqrt(1 - rule.beta2**rule.step) / (1 - rule.beta1**rule.step)
        direction = correction * state["first"] / (np.sqrt(state["second"]) + rule.eps)
    p -= rule.lr * rule.step_scale * direction


def touched(step: int) -> NDArray[np.int64]:
    """The rows of a step: some, in any order, now and then none."""
    random = np.random.default_rng(step)
    return random.permutation(NUM_ROWS)[: random.integers(0, 25)]


def train(store: RowStore, rules: list[UpdateRule]) -> Floats:
    for step, rule in enumerate(rules, start=1):
        rows = touched(step)
        ones = np.ones(len(rows), dtype=np.float32)
        store.apply(KEYS[rows], floats(step, len(rows), DIM), ones, ones, rule, step)
    out = np.empty((NUM_ROWS, DIM), dtype=np.float32)
    store.pull(KEYS, out)
    return out


@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_rows_follow_the_float64_optimizer(kind: str) -> None:
    rule = UpdateRule(lr=0.05, l2=0.1, step_scale=0.75, divisor=2.0, eps=1e-8)
    rules = [replace(rule, step=step, step_scale=1 / (1 + step % 3)) for step in range(1, NUM_STEPS + 1)]
    expected = initial_rows(KEYS, DIM, NORMAL).astype(np.float64)
    width = 1 if kind == "rowwise_adagrad" else DIM
    state = {name: np.zeros((NUM_ROWS, width)) for name in ("sum", "first", "second")}
    for step, each in enumerate(rules, start=1):
        rows = touched(step)
        part, own = expected[rows], {name: value[rows] for name, value in state.items()}
        in_double(kind, part, own, floats(step, len(rows), DIM).astype(np.float64), each)
        expected[rows] = part
        for name, value in own.items():
            state[name][rows] = value
    np.testing.assert_allclose(train(RowStore(DIM, kind, NORMAL), rules), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adam"])
def test_rows_follow_torch(kind: str) -> None:
    """Sparse gradients: SparseAdam's lazy rows with a global step, torch's sparse Adagrad and SGD."""
    parameter = torch.nn.Parameter(torch.from_numpy(initial_rows(KEYS, DIM, NORMAL)))
    optimizers: dict[str, Any] = {
        "sgd": lambda: torch.optim.SGD([parameter], lr=0.05),
        "adagrad": lambda: torch.optim.Adagrad([parameter], lr=0.05, eps=1e-10),
        "adam": lambda: torch.optim.SparseAdam([parameter], lr=0.05),
    }
    optimizer = optimizers[kind]()
    for step in range(1, NUM_STEPS + 1):
        rows = touched(step)
        values = torch.from_numpy(floats(step, len(rows), DIM))
        parameter.grad = torch.sparse_coo_tensor(torch.from_numpy(rows)[None], values, parameter.shape)
        optimizer.step()
    eps = 1e-10 if kind == "adagrad" else 1e-8
    rules = [UpdateRule(lr=0.05, eps=eps, step=step) for step in range(1, NUM_STEPS + 1)]
    expected = parameter.detach().numpy()
    np.testing.assert_allclose(train(RowStore(DIM, kind, NORMAL), rules), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adam"])
def test_dense_blocks_follow_torch(kind: str) -> None:
    params = floats(0, 101)
    parameter = torch.nn.Parameter(torch.from_numpy(params.copy()))
    optimizers: dict[str, Any] = {
        "sgd": lambda: torch.optim.SGD([parameter], lr=0.05, weight_decay=0.1),
        "adagrad": lambda: torch.optim.Adagrad([parameter], lr=0.05, weight_decay=0.1, eps=1e-10),
        "adam": lambda: torch.optim.Adam([parameter], lr=0.05, weight_decay=0.1),
    }
    optimizer = optimizers[kind]()
    states = np.zeros((NUM_DENSE_STATES[kind], 101), dtype=np.float32)
    eps = 1e-10 if kind == "adagrad" else 1e-8
    for step in range(1, NUM_STEPS + 1):
        sums = floats(step, 101)
        parameter.grad = torch.from_numpy(sums) / 4
        optimizer.step()
        apply_dense(params, sums, states, kind, UpdateRule(lr=0.05, l2=0.1, divisor=4.0, eps=eps, step=step))
    np.testing.assert_allclose(params, parameter.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_averages_move_a_tenth_of_the_way_scaled_by_the_step() -> None:
    params = np.array([1.0, 0.0], dtype=np.float32)
    sums = np.array([30.0, 10.0], dtype=np.float32)
    apply_dense(params, sums, np.empty((0, 2), np.float32), "average", UpdateRule(lr=0.0, divisor=10.0, step_scale=0.5))
    np.testing.assert_allclose(params, [1.0 + 0.05 * 2.0, 0.05], rtol=1e-6)


@many
@given(
    st.sampled_from(DENSE_KINDS),
    st.integers(0, 70),
    st.integers(0, 999),
    st.sampled_from([UpdateRule(lr=0.1), UpdateRule(lr=0.01, l2=0.3, step_scale=0.4, divisor=7.0, step=9)]),
)
def test_dense_update_matches_the_reference(kind: str, size: int, seed: int, rule: UpdateRule) -> None:
    params, states = floats(seed, size), np.abs(floats(seed + 1, NUM_DENSE_STATES[kind], size))
    expected_params, expected_states = params.copy(), states.copy()
    apply_dense(params, floats(seed + 2, size), states, kind, rule)
    reference.apply_dense(expected_params, floats(seed + 2, size), expected_states, kind, rule)
    assert_same(params, expected_params)
    assert_same(states, expected_states)


@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_a_zero_gradient_never_divides_by_zero(kind: str) -> None:
    store = RowStore(2, kind, NORMAL)
    zeros = np.zeros((1, 2), dtype=np.float32)
    nothing = np.zeros(1, dtype=np.float32)
    store.apply(KEYS[:1], zeros, nothing, nothing, UpdateRule(lr=0.1, eps=1e-8), 1)
    assert np.isfinite(store.export().values).all()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("lr", -0.1),
        ("lr", float("nan")),
        ("l2", float("inf")),
        ("step_scale", -1.0),
        ("divisor", 0.0),
        ("beta1", 1.0),
        ("beta2", -0.1),
        ("eps", -1e-8),
        ("step", 0),
    ],
)
def test_rules_that_cannot_be_used_are_refused(argument: str, value: float) -> None:
    with pytest.raises(KernelError) as caught:
        replace(UpdateRule(lr=0.1), **{argument: value})  # type: ignore[arg-type]
    assert caught.value.facts["argument"] == argument


def test_dense_blocks_that_do_not_fit_are_refused() -> None:
    params, states, rule = floats(0, 3), np.zeros((1, 3), dtype=np.float32), UpdateRule(lr=0.1)
    cases: dict[str, Callable[[], object]] = {
        "kind": lambda: apply_dense(params, params.copy(), states, "rowwise_adagrad", rule),
        "params": lambda: apply_dense(params.astype(np.float64), params, states, "adagrad", rule),
        "grads": lambda: apply_dense(params, params[:2], states, "adagrad", rule),
        "states": lambda: apply_dense(params, params.copy(), states, "adam", rule),
    }
    for argument, call in cases.items():
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.facts["argument"] == argument
