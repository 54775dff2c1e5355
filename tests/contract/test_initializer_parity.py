from __future__ import annotations

import math

import numpy as np
import pytest
from contract_samples import assert_same, dims, key_lists, keys_from, many, seeds
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError
from kernels.initializer import INITIALIZER_KINDS, Initializer, initial_rows, initializer_seed
from kernels.reference import initializer as reference

SOME_KEYS = np.arange(20_000, dtype=np.uint64)


@many
@given(key_lists, dims, st.sampled_from(INITIALIZER_KINDS), st.sampled_from([0.0, 1e-4, 0.01, 0.3, 7.0]), seeds)
def test_initial_rows_match_the_reference(values: list[int], dim: int, kind: str, scale: float, seed: int) -> None:
    keys = keys_from(values)
    expected = reference.initial_rows(keys, dim, kind, scale, seed)
    assert_same(initial_rows(keys, dim, Initializer(kind, scale, seed)), expected)


def test_a_row_depends_on_seed_table_key_and_column_only() -> None:
    initializer = Initializer("normal", 0.1, initializer_seed(7, "item"))
    rows = initial_rows(SOME_KEYS, 16, initializer)
    assert_same(initial_rows(SOME_KEYS[::-1].copy(), 16, initializer), rows[::-1].copy())
    assert_same(initial_rows(SOME_KEYS, 9, initializer), rows[:, :9].copy())
    for other in (initializer_seed(8, "item"), initializer_seed(7, "user"), initializer_seed(-7, "item")):
        assert not (initial_rows(SOME_KEYS, 16, Initializer("normal", 0.1, other)) == rows).any(axis=1).all()


def test_initial_values_never_change() -> None:
    """Rows that were never trained are in no checkpoint: these numbers are part of its meaning."""
    keys = keys_from([0, 2**64 - 1])
    uniform = initial_rows(keys, 2, Initializer("uniform", 0.5, initializer_seed(1, "item")))
    normal = initial_rows(keys, 2, Initializer("normal", 0.5, initializer_seed(1, "item")))
    assert uniform.tolist() == [[0.10469084978103638, -0.2641357183456421], [-0.12400591373443604, -0.2780206799507141]]
    assert normal.tolist() == [[0.3730279505252838, 0.7156907916069031], [-0.6010266542434692, 0.8659457564353943]]


def test_uniform_values_fill_their_range_evenly() -> None:
    rows = initial_rows(SOME_KEYS, 16, Initializer("uniform", 0.25, 3))
    assert rows.min() >= -0.25
    assert rows.max() < 0.25
    counts = np.histogram(rows, bins=32, range=(-0.25, 0.25))[0]
    expected = rows.size / 32
    assert float(((counts - expected) ** 2 / expected).sum()) < 31 + 6 * math.sqrt(62)


def test_normal_values_have_the_moments_and_tails_of_a_normal() -> None:
    rows = initial_rows(SOME_KEYS, 16, Initializer("normal", 2.0, 3)).astype(np.float64) / 2.0
    bound = 5 / math.sqrt(rows.size)
    assert abs(rows.mean()) < bound
    assert abs((rows**2).mean() - 1) < bound * math.sqrt(2)
    assert abs((rows**4).mean() - 3) < bound * math.sqrt(96)
    for limit in (0.5, 1.0, 2.0, 3.0):
        assert abs((np.abs(rows) > limit).mean() - math.erfc(limit / math.sqrt(2))) < bound
    correlations = np.corrcoef(rows.T) - np.eye(16)
    assert np.abs(correlations).max() < 6 / math.sqrt(len(SOME_KEYS))


@pytest.mark.parametrize(
    ("kind", "scale", "seed", "argument"),
    [
        ("xavier", 0.1, 0, "kind"),
        ("uniform", -0.1, 0, "scale"),
        ("uniform", math.nan, 0, "scale"),
        ("normal", math.inf, 0, "scale"),
        ("zero", 0.0, 2**64, "seed"),
    ],
)
def test_bad_settings_are_refused(kind: str, scale: float, seed: int, argument: str) -> None:
    with pytest.raises(KernelError) as caught:
        Initializer(kind, scale, seed)
    assert caught.value.facts["argument"] == argument


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(KernelError, match="dim"):
        initial_rows(SOME_KEYS, 0, Initializer("zero", 0.0, 0))
    with pytest.raises(KernelError, match="keys"):
        initial_rows(SOME_KEYS.view(np.int64), 1, Initializer("zero", 0.0, 0))
