"""The optimizers against float64 written from the papers, and against torch.optim, over many random steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from contract_samples import assert_same, contribution, floats, many
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from table_programs import records_of

from geartrain.errors import KernelError
from geartrain.types import NUM_SHARDS, Floats, Keys
from kernels.contribution import MAX_GRADIENT, Contribution, within
from kernels.dense_update import NUM_DENSE_STATES, apply_dense
from kernels.hashing import mix64
from kernels.initializer import Initializer, initial_rows
from kernels.reference import dense_update as reference
from kernels.row_store import RowStore, UpdateRule
from kernels.update_rule import DENSE_KINDS, SPARSE_KINDS

NUM_ROWS, DIM, NUM_STEPS, NUM_TORCH_STEPS = 40, 9, 1000, 150
NORMAL = Initializer("normal", 0.3, 11)
ZERO = Initializer("zero", 0.0, 0)
KEYS: Keys = mix64(np.arange(NUM_ROWS, dtype=np.uint64))
RULE = UpdateRule(lr=0.05, l2=0.01, step_scale=0.75, divisor=2.0, l1=0.02, beta=0.5)
RULES = [
    replace(RULE, step=step, step_scale=1 / (1 + step % 3), most_windows=1 + step % 4)
    for step in range(1, NUM_STEPS + 1)
]
Doubles = NDArray[np.float64]


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Tensors this small cost more to share among threads than to work on."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def in_double(
    kind: str, p: Doubles, state: dict[str, Doubles], sums: Doubles, rule: UpdateRule, windows: Doubles
) -> None:
    """One update of rows `p` [N, D] in float64, as the papers write it, for `windows` [N, 1] windows each."""
    mean = sums / (rule.divisor * windows)
    scale = rule.step_scale * windows
    grad = mean + rule.l2 * p
    if kind == "sgd":
        p -= rule.lr * scale * grad
    elif kind == "adagrad":
        state["sum"] += grad**2
        p -= rule.lr * scale * grad / (np.sqrt(state["sum"]) + rule.eps)
    elif kind == "rowwise_adagrad":
        state["sum"] += (grad**2).mean(axis=1, keepdims=True)
        p -= rule.lr * scale * grad / (np.sqrt(state["sum"]) + rule.eps)
    elif kind in ("adam", "rowwise_adam"):
        square = grad**2 if kind == "adam" else np.broadcast_to((grad**2).mean(axis=1, keepdims=True), grad.shape)
        state["first"] = rule.beta1 * state["first"] + (1 - rule.beta1) * grad
        state["second"] = rule.beta2 * state["second"] + (1 - rule.beta2) * square
        correction = np.sqrt(1 - rule.beta2**rule.step) / (1 - rule.beta1**rule.step)
        p -= rule.lr * scale * correction * state["first"] / (np.sqrt(state["second"]) + rule.eps)
    else:
        sigma = (np.sqrt(state["sum"] + mean**2) - np.sqrt(state["sum"])) / rule.lr
        state["first"] += mean - sigma * p
        state["sum"] += mean**2
        strength = (rule.beta + np.sqrt(state["sum"])) / rule.lr + rule.l2
        excess = np.sign(state["first"]) * np.maximum(np.abs(state["first"]) - rule.l1, 0)
        p += scale * (-excess / strength - p)
    np.clip(p, rule.min_weight, rule.max_weight, out=p)


def contributions_of(step: int, num_rows: int = NUM_ROWS) -> list[tuple[NDArray[np.int64], Contribution]]:
    """Some workers, each with some rows in any order, now and then none; many rows are in several."""
    random = np.random.default_rng(step)
    parts = []
    for _ in range(random.integers(1, 4)):
        rows = random.permutation(num_rows)[: random.integers(0, 25)]
        weight = float(random.choice([1.0, 0.9, 0.3]))
        part = contribution(KEYS[rows], DIM, int(random.integers(2**31)), weight)
        parts.append((rows, part))
    return parts


def train(store: RowStore, rules: list[UpdateRule]) -> Floats:
    for step, rule in enumerate(rules, start=1):
        store.apply([part for _, part in contributions_of(step)], rule, step, num_threads=1 + step % 2)
    out = np.empty((NUM_ROWS, DIM), dtype=np.float32)
    store.pull(KEYS, out)
    return out


def train_in_double(kind: str, rules: list[UpdateRule]) -> Doubles:
    rows = initial_rows(KEYS, DIM, NORMAL).astype(np.float64)
    state = {name: np.zeros((NUM_ROWS, DIM)) for name in ("sum", "first", "second")}
    last_steps = np.zeros((NUM_ROWS, 1))
    for step, rule in enumerate(rules, start=1):
        sums, touched = np.zeros((NUM_ROWS, DIM)), np.zeros(NUM_ROWS, dtype=np.bool_)
        for own, part in contributions_of(step):
            sums[own] += part.weight * part.grads.astype(np.float64)
            touched[own] = True
        part_of = {name: value[touched] for name, value in state.items()}
        updated = rows[touched]
        last = last_steps[touched]
        windows = np.where(last == 0, rule.most_windows, np.minimum(rule.most_windows, step - last))
        in_double(kind, updated, part_of, sums[touched], rule, windows)
        last_steps[touched] = step
        rows[touched] = updated
        for name, value in part_of.items():
            state[name][touched] = value
    return rows


@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (-0.2, 0.1)], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_rows_follow_the_float64_optimizer(kind: str, bounds: tuple[float, float]) -> None:
    """A thousand steps; rows stay within 1e-4 of their size, or 1e-5 near zero."""
    rules = [replace(rule, min_weight=bounds[0], max_weight=bounds[1]) for rule in RULES]
    got, expected = train(RowStore(DIM, kind, NORMAL), rules), train_in_double(kind, rules)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert (got >= np.float32(bounds[0])).all() and (got <= np.float32(bounds[1])).all()


@pytest.mark.parametrize("row_dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_the_largest_gradients_leave_finite_rows_that_go_on_learning(kind: str, row_dtype: str) -> None:
    """Eight workers with the largest gradient that may reach a row, in every window, and little to divide by."""
    keys, num_windows = np.arange(3, dtype=np.uint64), 50
    store = RowStore(64, kind, NORMAL, row_dtype=row_dtype)
    counts = np.ones(3, dtype=np.float32)
    for version in range(1, 2 * num_windows + 1):
        size = MAX_GRADIENT * (-1) ** (version % 3 == 0) if version <= num_windows else 1.0
        part = Contribution(keys, np.full((3, 64), size, dtype=np.float32), counts, 0 * counts, 1.0)
        store.apply([part] * 8, UpdateRule(lr=10.0, step=version, divisor=1e-3), version)
    store.begin_cut(2 * num_windows, None)
    rows = store.cut_shards(0, NUM_SHARDS).rows
    assert len(rows.keys) == 3
    assert np.isfinite(rows.states).all()
    out = np.empty((3, 64), dtype=np.float32)
    store.pull(keys, out)
    assert np.isfinite(out).all()


@given(st.lists(st.floats(width=32) | st.just(MAX_GRADIENT), max_size=40))
def test_exactly_numbers_beyond_the_limit_are_not_within_it(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    assert within(array, MAX_GRADIENT) == all(abs(value) <= MAX_GRADIENT for value in array.tolist())


@pytest.mark.parametrize("row_dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_rows_of_16_bits_follow_the_float64_optimizer_on_average(kind: str, row_dtype: str) -> None:
    """1,500 rows with equal gradients: their mean is within 5 standard errors, for rules that are linear in the row."""
    num_rows, dim, num_steps = 1500, 2, 100
    keys = mix64(np.arange(num_rows, dtype=np.uint64))
    store = RowStore(dim, kind, ZERO, row_dtype=row_dtype)
    rules = [UpdateRule(lr=0.05, beta=0.5, step=step) for step in range(1, num_steps + 1)]
    expected, state = np.zeros((1, dim)), {name: np.zeros((1, dim)) for name in ("sum", "first", "second")}
    for step, rule in enumerate(rules, start=1):
        one = floats(step, 1, dim) + np.float32(0.5)
        part = contribution(keys, dim, 0, shows=1.0)._replace(grads=np.repeat(one, num_rows, axis=0))
        store.apply([part], rule, step)
        in_double(kind, expected, state, one.astype(np.float64), rule, np.ones((1, 1)))
    out = np.empty((num_rows, dim), dtype=np.float32)
    store.pull(keys, out)
    errors = out.astype(np.float64) - expected
    spread = errors.std(axis=0)
    assert (spread > 0).all()
    assert (np.abs(errors.mean(axis=0)) <= 5 * spread / num_rows**0.5 + 1e-6).all()


@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_small_windows_leave_a_row_that_one_of_them_has_where_a_whole_round_does(kind: str) -> None:
    """A quarter of the round's samples has the row: the same update as from all samples at once, also the next time."""
    parts = [contribution(KEYS[:5], DIM, seed) for seed in (1, 2)]
    whole, quarter = RowStore(DIM, kind, NORMAL), RowStore(DIM, kind, NORMAL)
    rule = UpdateRule(lr=0.05, l2=0.01, divisor=64.0, l1=0.02)
    for number, part in enumerate(parts):
        whole.apply([part], rule, 1 + number)
        quarter.apply([part], replace(rule, divisor=16.0, step_scale=0.25, most_windows=4.0), 2 + 5 * number)
    assert_same(records_of(quarter).values, records_of(whole).values)
    assert_same(records_of(quarter).states, records_of(whole).states)


def test_a_row_that_many_small_windows_have_takes_a_small_step_in_each() -> None:
    store = RowStore(DIM, "sgd", ZERO)
    part = contribution(KEYS[:1], DIM, 1)
    rule = UpdateRule(lr=1.0, divisor=16.0, step_scale=0.25, most_windows=4.0)
    for version in (3, 4, 6):
        store.apply([part], rule, version)
    # In sgd the step and the mean grow alike, so however many windows an update stands for, it is the same.
    np.testing.assert_allclose(records_of(store).values, -3 * 0.25 * part.grads / 16.0, rtol=1e-6)
    ada = RowStore(DIM, "adagrad", ZERO)
    for version in (3, 4, 6):
        ada.apply([part], replace(rule, eps=0.0), version)
    squares = np.cumsum([(part.grads[0] / (16.0 * windows)) ** 2 for windows in (4, 1, 2)], axis=0)
    expected = sum(-0.25 * part.grads[0] / 16.0 / np.sqrt(square) for square in squares)
    np.testing.assert_allclose(records_of(ada).values[0], expected, rtol=1e-5)


def test_ftrl_makes_exact_zeros_of_what_l1_outweighs() -> None:
    store = RowStore(DIM, "ftrl", NORMAL)
    store.apply([contribution(KEYS, DIM, 3)], UpdateRule(lr=0.1, l1=1.0), 1)
    records = records_of(store)
    small = np.abs(records.states[:, :DIM]) <= 1
    assert 0 < small.mean() < 1
    assert_same(records.values == 0, small)


def test_ftrl_without_a_rate_leaves_rows_as_they_are() -> None:
    store = RowStore(DIM, "ftrl", NORMAL)
    train(store, RULES[:20])
    before = records_of(store)
    store.apply([contribution(KEYS, DIM, 3)], replace(RULE, lr=0.0), 30)
    after = records_of(store)
    assert_same(after.values, before.values)
    assert_same(after.states, before.states)
    assert (after.last_versions == 30).all()


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
    for step in range(1, NUM_TORCH_STEPS + 1):
        parts = contributions_of(step)
        rows = torch.from_numpy(np.concatenate([own for own, _ in parts]))
        values = torch.from_numpy(np.concatenate([part.grads * np.float32(part.weight) for _, part in parts]))
        parameter.grad = torch.sparse_coo_tensor(rows[None], values, parameter.shape)
        optimizer.step()
    eps = 1e-10 if kind == "adagrad" else 1e-8
    rules = [UpdateRule(lr=0.05, eps=eps, step=step) for step in range(1, NUM_TORCH_STEPS + 1)]
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
    for step in range(1, NUM_TORCH_STEPS + 1):
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
    for version in (1, 2):
        store.apply([Contribution(KEYS[:1], zeros, nothing, nothing, 1.0)], UpdateRule(lr=0.1, beta=0.0), version)
    assert np.isfinite(records_of(store).values).all()


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
        ("l1", -1.0),
        ("beta", float("nan")),
        ("min_weight", float("nan")),
        ("min_weight", float("inf")),
        ("max_weight", float("nan")),
        ("max_weight", -float("inf")),
    ],
)
def test_rules_that_cannot_be_used_are_refused(argument: str, value: float) -> None:
    with pytest.raises(KernelError) as caught:
        replace(UpdateRule(lr=0.1), **{argument: value})  # type: ignore[arg-type]
    assert caught.value.facts["argument"] == argument


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(KernelError, match="max_weight"):
        UpdateRule(lr=0.1, min_weight=0.5, max_weight=0.25)


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
