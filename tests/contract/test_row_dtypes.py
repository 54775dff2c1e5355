"""Rows stored in 16 bits: every rounding is to a neighbor, right on average, and the same everywhere."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from contract_samples import assert_same, contribution, few, keys_from, many, seeds
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from table_programs import UNIFORM, records_of

from geartrain.types import Floats, Keys
from kernels.contribution import Contribution
from kernels.hashing import mix64
from kernels.initializer import Initializer, initial_rows
from kernels.reference.low_precision import random_bits, widen
from kernels.reference.row_store import RowStore as ReferenceStore
from kernels.row_life import RowLife
from kernels.row_store import RowStore, UpdateRule

LOW_DTYPES = ("fp16", "bf16")
LARGEST = {"fp16": np.float32(65504.0), "bf16": np.array([0x7F7F0000], dtype=np.uint32).view(np.float32)[0]}
ZERO = Initializer("zero", 0.0, 0)
STEP = UpdateRule(lr=1.0)

low_dtypes = st.sampled_from(LOW_DTYPES)
INFINITIES_AND_NANS = (0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001)
LARGEST_OF_ALL = (0x7F7FFFFF, 0xFF7FFFFF, 0x477FE000, 0x477FDFFF, 0x477FFFFF)
SMALLEST_OF_ALL = (0x38800000, 0x387FFFFF, 0x33800000, 0x33000000, 0x33000001, 1, 0x80000000, 0x80000001, 0x807FFFFF)
any_bits = st.integers(0, 2**32 - 1) | st.sampled_from(INFINITIES_AND_NANS + LARGEST_OF_ALL + SMALLEST_OF_ALL)


def gradients(keys: Keys, grads: Floats) -> Contribution:
    return contribution(keys, grads.shape[1], 0, shows=1.0)._replace(grads=grads)


def stored(make: type, row_dtype: str, values: Floats, keys: Keys, seed: int = 1, version: int = 5) -> NDArray:
    """What a fresh store keeps of rows that one step of SGD brings from zero to `values` [N, D]."""
    store = make(values.shape[1], "sgd", ZERO, RowLife(seed=seed), row_dtype)
    store.apply([gradients(keys, -values)], STEP, version)
    records = records_of(store)
    places = {key: place for place, key in enumerate(records.keys.tolist())}
    return records.values[[places[key] for key in keys.tolist()]]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@many
@given(st.lists(any_bits, min_size=1, max_size=40), low_dtypes, seeds, st.integers(0, 2**32 - 1))
@example([0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0xFF7FFFFF, 0x477FE000, 0x807FFFFF], "fp16", 0, 1)
def test_rounding_of_any_float_matches_the_reference(bits: list[int], row_dtype: str, seed: int, version: int) -> None:
    """In rows of 5, so that the columns of a row draw from two hashes."""
    values = np.resize(np.array(bits, dtype=np.uint32), (len(bits) // 5 + 1, 5)).view(np.float32)
    keys = mix64(np.arange(len(values), dtype=np.uint64) + np.uint64(seed % 1000))
    got = stored(RowStore, row_dtype, values, keys, seed, version)
    expected = stored(ReferenceStore, row_dtype, values, keys, seed, version)
    numbers = ~np.isnan(values)
    assert_same(got.view(np.uint16)[numbers], expected.view(np.uint16)[numbers])
    assert np.isnan(widen(got, row_dtype))[~numbers].all()


def neighbors(row_dtype: str, value: float) -> tuple[float, float]:
    """The values of the format next to a finite `value`, below and above in size, by struct and integers alone."""
    largest = float(LARGEST[row_dtype])
    if abs(value) >= largest:
        return largest, largest
    if row_dtype == "bf16":
        (bits,) = struct.unpack("<I", struct.pack("<f", abs(value)))
        below, above = (
            struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in (bits >> 16, (bits >> 16) + 1)
        )
        return below, below if below == abs(value) else above
    (half,) = struct.unpack("<H", struct.pack("<e", abs(value)))
    near = [
        struct.unpack("<e", struct.pack("<H", word))[0] for word in range(max(0, half - 1), min(0x7BFF, half + 1) + 1)
    ]
    return max(each for each in near if each <= abs(value)), min(each for each in near if each >= abs(value))


@many
@given(st.floats(width=32, allow_nan=False, allow_infinity=False), low_dtypes, st.integers(0, 999))
def test_a_value_goes_to_one_of_its_neighbors(value: float, row_dtype: str, seed: int) -> None:
    values = np.full((1, 64), value, dtype=np.float32)
    got = widen(stored(RowStore, row_dtype, values, keys_from([seed])), row_dtype)
    below, above = neighbors(row_dtype, value)
    assert set(np.abs(got).ravel().tolist()) <= {below, above}
    assert value == 0 or (np.signbit(got) == (value < 0)).all()


@pytest.mark.parametrize("row_dtype", LOW_DTYPES)
def test_values_of_the_format_are_stored_as_they_are(row_dtype: str) -> None:
    """All of them, at several versions; a step without a gradient changes nothing."""
    words = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    words = words if row_dtype == "bf16" else words.view(np.float16)
    values = widen(words, row_dtype)
    values = values[np.isfinite(values)].reshape(-1, 8)
    keys = np.arange(len(values), dtype=np.uint64)
    store = RowStore(8, "sgd", ZERO, RowLife(seed=1), row_dtype)
    store.apply([gradients(keys, -values)], STEP, 1)
    for version in (2, 3):
        store.apply([gradients(keys, np.zeros_like(values))], STEP, version)
    out = np.empty_like(values)
    store.pull(keys, out)
    np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("row_dtype", LOW_DTYPES)
@pytest.mark.parametrize("value", [1.0 + 2.0**-12, -3.1415926, 0.1, 1e-3, 3e-6, -5e-8, 1e-12, 60000.3])
def test_rounding_is_right_on_average(row_dtype: str, value: float) -> None:
    """Over 80,000 draws the mean is within 5 standard errors."""
    values = np.full((20_000, 4), value, dtype=np.float32)
    got = widen(stored(RowStore, row_dtype, values, mix64(np.arange(20_000, dtype=np.uint64))), row_dtype)
    below, above = neighbors(row_dtype, float(np.float32(value)))
    share = (abs(float(np.float32(value))) - below) / (above - below)
    num_up = int((np.abs(got) == np.float32(above)).sum())
    # A subnormal fp16 compares with 16 random bits, which may round its share up to the next of 65,536.
    assert abs(num_up - share * got.size) <= 5 * (got.size * share * (1 - share)) ** 0.5 + got.size * 2.0**-16
    per_column = (np.abs(got) == np.float32(above)).sum(axis=0)
    assert (np.abs(per_column - share * len(got)) <= 6 * (len(got) * share * (1 - share)) ** 0.5 + 1).all()


@pytest.mark.parametrize("row_dtype", LOW_DTYPES)
def test_small_updates_add_up(row_dtype: str) -> None:
    """2,000 steps of a 256th of what the format resolves: rounding to nearest would stay at 1."""
    keys = mix64(np.arange(200, dtype=np.uint64))
    step = {"fp16": 2.0**-18, "bf16": 2.0**-15}[row_dtype]
    store = RowStore(4, "sgd", ZERO, RowLife(seed=3), row_dtype)
    store.apply([gradients(keys, np.full((200, 4), -1.0, dtype=np.float32))], STEP, 0)
    down = gradients(keys, np.full((200, 4), -step, dtype=np.float32))
    for version in range(1, 2001):
        store.apply([down], STEP, version)
    out = np.empty((200, 4), dtype=np.float32)
    store.pull(keys, out)
    expected = 1 + 2000 * step
    # Each step moves by 256 of its size with one chance in 256: the variance of the sum is 2000 * 255 * step ** 2.
    error = (2000 * 255) ** 0.5 * step
    assert abs(float(out.mean()) - expected) <= 5 * error / out.size**0.5
    assert abs(out - expected).max() <= 6 * error


@few
@given(seeds, seeds, st.integers(0, 2**32 - 1))
def test_draws_differ_by_key_version_column_and_seed(key: int, seed: int, version: int) -> None:
    base = random_bits(keys_from([key]), 64, seed, version)
    others = [
        random_bits(keys_from([key ^ 1]), 64, seed, version),
        random_bits(keys_from([key]), 64, seed ^ 1, version),
        random_bits(keys_from([key]), 64, seed, version ^ 1),
        np.roll(base, 1, axis=1),
    ]
    assert all((base == other).mean() < 0.2 for other in others)


@pytest.mark.parametrize("row_dtype", LOW_DTYPES)
def test_a_row_is_born_from_its_unrounded_values_and_reads_as_them_before(row_dtype: str) -> None:
    keys = mix64(np.arange(500, dtype=np.uint64))
    store = RowStore(3, "sgd", UNIFORM, RowLife(seed=1), row_dtype)
    first = initial_rows(keys, 3, UNIFORM)
    out = np.empty_like(first)
    store.pull(keys, out)
    assert_same(out, first)
    store.apply([gradients(keys, np.zeros_like(first))], STEP, 1)
    store.pull(keys, out)
    unit = {"fp16": 2.0**-10, "bf16": 2.0**-7}[row_dtype]
    assert (out != first).mean() > 0.9
    assert (np.abs(out - first) <= np.abs(first) * unit + 2.0**-24).all()
    assert abs(float((out - first).mean())) <= 5 * float(np.abs(out - first).max()) / out.size**0.5


@pytest.mark.parametrize("row_dtype", LOW_DTYPES)
def test_states_stay_in_float32(row_dtype: str) -> None:
    keys = keys_from([1, 2])
    part = contribution(keys, 5, 3)
    low, full = (RowStore(5, "adagrad", ZERO, RowLife(seed=1), dtype) for dtype in (row_dtype, "fp32"))
    for store in (low, full):
        store.apply([part], STEP, 1)
    assert_same(records_of(low).states, records_of(full).states)


def test_rows_in_16_bits_take_less_memory() -> None:
    keys = mix64(np.arange(100_000, dtype=np.uint64))
    sizes = {}
    for row_dtype in ("fp32", *LOW_DTYPES):
        store = RowStore(32, "rowwise_adagrad", ZERO, RowLife(seed=1), row_dtype)
        store.apply([contribution(keys, 32, 0)], STEP, 1)
        sizes[row_dtype] = store.memory_bytes
    for row_dtype in LOW_DTYPES:
        assert sizes["fp32"] - sizes[row_dtype] > 60 * len(keys)
