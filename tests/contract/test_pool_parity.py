from __future__ import annotations

import numpy as np
import pytest
from contract_samples import Bags, assert_same, bags, dims, floats, many
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError
from geartrain.types import Floats, Places
from kernels.pool import count_shows, pool_backward, pool_forward
from kernels.reference import pool as reference


def places(values: list[int]) -> Places:
    return np.array(values, dtype=np.int32)


def pooled_by_hand(rows: Floats, sample: Bags) -> Floats:
    """float64, one bag at a time."""
    out = np.zeros((sample.num_samples, len(sample.mean_slots), rows.shape[1]))
    for bag in range(sample.num_samples * len(sample.mean_slots)):
        chosen = sample.inverse[sample.bag_offsets[bag] : sample.bag_offsets[bag + 1]]
        slot, number = divmod(bag, sample.num_samples)
        total = rows[chosen].astype(np.float64).sum(axis=0)
        out[number, slot] = total / max(len(chosen), 1) if sample.mean_slots[slot] else total
    return out.astype(np.float32)


@many
@given(bags(), dims, st.integers(0, 999))
def test_pooling_matches_the_reference(sample: Bags, dim: int, seed: int) -> None:
    rows = floats(seed, sample.num_unique, dim)
    arguments = (rows, sample.inverse, sample.bag_offsets, sample.mean_slots, sample.num_samples)
    pooled = pool_forward(*arguments)
    assert_same(pooled, reference.pool_forward(*arguments))
    np.testing.assert_allclose(pooled, pooled_by_hand(rows, sample), rtol=1e-4, atol=1e-4)


@many
@given(bags(), dims, st.integers(0, 999))
def test_gradient_matches_the_reference(sample: Bags, dim: int, seed: int) -> None:
    grad = floats(seed, sample.num_samples, len(sample.mean_slots), dim)
    arguments = (grad, sample.inverse, sample.bag_offsets, sample.mean_slots, sample.num_unique)
    assert_same(pool_backward(*arguments), reference.pool_backward(*arguments))


@many
@given(bags(), st.integers(0, 999))
def test_gradient_is_the_adjoint_of_pooling(sample: Bags, seed: int) -> None:
    rows = floats(seed, sample.num_unique, 5)
    grad = floats(seed + 1, sample.num_samples, len(sample.mean_slots), 5)
    pooled = pool_forward(rows, sample.inverse, sample.bag_offsets, sample.mean_slots, sample.num_samples)
    back = pool_backward(grad, sample.inverse, sample.bag_offsets, sample.mean_slots, sample.num_unique)
    products = pooled.astype(np.float64) * grad
    # Terms of both signs cancel, so the rounding of float32 counts against the sum of their sizes.
    tolerance = 1e-5 * (float(np.abs(products).sum()) + float(np.abs(rows.astype(np.float64) * back).sum()) + 1.0)
    assert float(products.sum()) == pytest.approx(float((rows.astype(np.float64) * back).sum()), abs=tolerance)


@many
@given(bags(), st.integers(0, 999))
def test_shows_and_clicks_match_the_reference(sample: Bags, seed: int) -> None:
    labels = (floats(seed, sample.num_samples) > 0).astype(np.float32)
    arguments = (sample.inverse, sample.bag_offsets, labels, sample.num_unique)
    shows, clicks = count_shows(*arguments)
    for got, expected in zip((shows, clicks), reference.count_shows(*arguments), strict=True):
        assert_same(got, expected)
    assert shows.sum() == len(sample.inverse)
    assert (clicks <= shows).all()


@many
@given(st.integers(0, 150), st.lists(st.integers(0, 1), max_size=4), dims, st.integers(0, 999))
def test_bags_of_one_key_need_no_offsets(num_samples: int, mean_slots: list[int], dim: int, seed: int) -> None:
    num_bags, means = num_samples * len(mean_slots), np.array(mean_slots, dtype=np.uint8)
    inverse = np.random.default_rng(seed).integers(0, 50, num_bags, dtype=np.int32)
    rows, grad = floats(seed, 50, dim), floats(seed, num_samples, len(mean_slots), dim)
    labels = (floats(seed, num_samples) > 0).astype(np.float32)
    for kernels in (pool_forward, reference.pool_forward):
        with_offsets = kernels(rows, inverse, np.arange(num_bags + 1, dtype=np.int32), means, num_samples)
        assert_same(pool_forward(rows, inverse, None, means, num_samples), with_offsets)
    assert_same(pool_backward(grad, inverse, None, means, 50), reference.pool_backward(grad, inverse, None, means, 50))
    for got, expected in zip(
        count_shows(inverse, None, labels, 50), reference.count_shows(inverse, None, labels, 50), strict=True
    ):
        assert_same(got, expected)


def test_without_offsets_keys_and_bags_are_as_many() -> None:
    means = np.zeros(2, dtype=np.uint8)
    with pytest.raises(KernelError, match=r"inverse: expected shape \[4\], got shape \[3\]"):
        pool_forward(floats(0, 3, 2), places([0, 1, 2]), None, means, 2)
    with pytest.raises(KernelError, match=r"inverse: expected shape \[4\], got shape \[5\]"):
        pool_backward(floats(0, 2, 2, 2), places([0] * 5), None, means, 3)
    with pytest.raises(KernelError, match="inverse: expected a multiple of 2 bags, got 3 bags"):
        count_shows(places([0, 1, 2]), None, np.zeros(2, dtype=np.float32), 3)
    with pytest.raises(KernelError, match=r"inverse: expected values in \[0, 3\), got 3 at position 2"):
        pool_forward(floats(0, 3, 2), places([0, 1, 3, 0]), None, means, 2)


def test_mean_of_an_empty_bag_is_zero_and_gives_no_gradient() -> None:
    offsets, inverse, means = places([0, 0, 2]), places([0, 1]), np.ones(1, dtype=np.uint8)
    rows = np.array([[2.0], [4.0]], dtype=np.float32)
    assert pool_forward(rows, inverse, offsets, means, 2).tolist() == [[[0.0]], [[3.0]]]
    grad = np.array([[[8.0]], [[1.0]]], dtype=np.float32)
    assert pool_backward(grad, inverse, offsets, means, 2).tolist() == [[0.5], [0.5]]


def test_result_is_written_to_the_callers_buffer() -> None:
    rows, out = floats(0, 3, 4), np.full((2, 1, 4), np.nan, dtype=np.float32)
    pooled = pool_forward(rows, places([2, 0]), places([0, 1, 2]), np.zeros(1, dtype=np.uint8), 2, out)
    assert pooled is out
    assert_same(out[:, 0], rows[[2, 0]])


@pytest.mark.parametrize(
    ("inverse", "offsets", "argument", "position"),
    [
        ([0, 3], [0, 1, 2], "inverse", 1),
        ([-1, 0], [0, 1, 2], "inverse", 0),
        ([0, 1], [0, 2, 1], "bag_offsets", 2),
        ([0, 1], [1, 1, 2], "bag_offsets", 0),
        ([0, 1], [0, 1, 3], "bag_offsets", 2),
        ([0, 1], [0, 1, 1], "bag_offsets", 2),
        ([0, 1], [0, 3, 2], "bag_offsets", 2),
        ([0, 1], [0, -(2**31), 2], "bag_offsets", 1),
        ([0, 1, -(2**31), 1], [0, 4, 4], "inverse", 2),
        ([0, 1, 2, 2**31 - 1], [0, 0, 4], "inverse", 3),
    ],
)
def test_bad_bags_are_refused_with_their_place(
    inverse: list[int], offsets: list[int], argument: str, position: int
) -> None:
    rows_of_keys, bounds = places(inverse), places(offsets)
    means = np.zeros(1, dtype=np.uint8)
    with pytest.raises(KernelError) as forward:
        pool_forward(floats(0, 3, 2), rows_of_keys, bounds, means, 2)
    with pytest.raises(KernelError) as backward:
        pool_backward(floats(0, 2, 1, 2), rows_of_keys, bounds, means, 3)
    with pytest.raises(KernelError) as counting:
        count_shows(rows_of_keys, bounds, np.zeros(2, dtype=np.float32), 3)
    for caught in (forward, backward, counting):
        assert (caught.value.facts["argument"], caught.value.facts["position"]) == (argument, position)


@pytest.mark.parametrize("wrong", [-1, -(2**31), 2**31 - 1, 301])
def test_bad_offsets_behind_the_first_samples_are_refused(wrong: int) -> None:
    """Of 150 samples with two slots: inside the first, where the second begins, and inside that."""
    offsets = np.arange(301, dtype=np.int32)
    inverse, means = np.zeros(300, dtype=np.int32), np.zeros(2, dtype=np.uint8)
    for place in (128, 150, 214, 278):
        bad = offsets.copy()
        bad[place] = wrong
        with pytest.raises(KernelError, match="bag_offsets"):
            pool_forward(floats(0, 3, 2), inverse, bad, means, 150)
        with pytest.raises(KernelError, match="bag_offsets"):
            pool_backward(floats(0, 150, 2, 2), inverse, bad, means, 3)
        with pytest.raises(KernelError, match="bag_offsets"):
            count_shows(inverse, bad, np.zeros(150, dtype=np.float32), 3)


@pytest.mark.parametrize(
    ("dtype", "told"), [("<i8", "int64"), (">i4", "int32 of the other byte order")], ids=["int64", "big-endian"]
)
@pytest.mark.parametrize("argument", ["inverse", "bag_offsets"])
def test_places_of_another_kind_are_refused_by_name(argument: str, dtype: str, told: str) -> None:
    arrays = {"inverse": places([0, 1]), "bag_offsets": places([0, 1, 2])}
    arrays[argument] = arrays[argument].astype(dtype)  # type: ignore[assignment]
    inverse, bounds, means = arrays["inverse"], arrays["bag_offsets"], np.zeros(1, dtype=np.uint8)
    with pytest.raises(KernelError, match=f"{argument}: expected dtype int32, got dtype {told}$"):
        pool_forward(floats(0, 3, 2), inverse, bounds, means, 2)
    with pytest.raises(KernelError, match=f"{argument}: expected dtype int32, got dtype {told}$"):
        pool_backward(floats(0, 2, 1, 2), inverse, bounds, means, 3)
    with pytest.raises(KernelError, match=f"{argument}: expected dtype int32, got dtype {told}$"):
        count_shows(inverse, bounds, np.zeros(2, dtype=np.float32), 3)


def test_negative_numbers_are_refused_by_name() -> None:
    none, bounds, means = places([]), places([0]), np.zeros(0, dtype=np.uint8)
    with pytest.raises(KernelError, match="num_samples: expected a number >= 0, got -1"):
        pool_forward(floats(0, 3, 2), none, bounds, means, -1)
    with pytest.raises(KernelError, match="num_unique: expected a number >= 0, got -2"):
        pool_backward(floats(0, 1, 0, 2), none, bounds, means, -2)
    with pytest.raises(KernelError, match="num_unique: expected a number >= 0, got -2"):
        count_shows(none, bounds, np.zeros(0, dtype=np.float32), -2)


@pytest.mark.parametrize(("num_labels", "offsets"), [(0, [0, 1]), (2, [0, 0, 0, 1]), (0, []), (1, [])])
def test_labels_that_do_not_fit_the_bags_are_refused(num_labels: int, offsets: list[int]) -> None:
    bounds = places(offsets)
    with pytest.raises(KernelError, match="bag_offsets"):
        count_shows(places([0]), bounds, np.zeros(num_labels, dtype=np.float32), 1)
