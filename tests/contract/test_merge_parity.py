from __future__ import annotations

import numpy as np
import pytest
from contract_samples import assert_same, dims, floats, key_lists, keys_from, many
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError
from geartrain.types import Floats, Keys
from kernels.merge import Merged, merge_contributions
from kernels.reference import merge as reference

Contributions = tuple[list[Keys], list[Floats], list[Floats], list[Floats], list[float]]


@st.composite
def contributions(draw: st.DrawFn) -> Contributions:
    """One to four workers with overlapping keys; some push nothing."""
    keys = [keys_from(values) for values in draw(st.lists(key_lists, min_size=1, max_size=4))]
    dim, seed = draw(dims), draw(st.integers(0, 999))
    weights = draw(st.lists(st.sampled_from([1.0, 0.5, 0.1, 0.0]), min_size=len(keys), max_size=len(keys)))
    grads = [floats(seed + i, len(part), dim) for i, part in enumerate(keys)]
    shows: list[Floats] = [np.ceil(np.abs(floats(seed + i, len(part)))) for i, part in enumerate(keys)]
    return keys, grads, shows, [count * np.float32(0.5) for count in shows], weights


@many
@given(contributions())
def test_merge_matches_the_reference(parts: Contributions) -> None:
    merged, expected = merge_contributions(*parts), Merged(*reference.merge_contributions(*parts))
    assert_same(merged.keys, expected.keys)
    assert_same(merged.grads, expected.grads)
    assert_same(merged.shows, expected.shows)
    assert_same(merged.clicks, expected.clicks)


@many
@given(contributions())
def test_merge_is_the_weighted_sum_of_every_worker(parts: Contributions) -> None:
    """The same key from two workers counts twice, whichever comes last."""
    keys, grads, shows, _, weights = parts
    merged = merge_contributions(*parts)
    assert len(set(merged.keys.tolist())) == len(merged.keys)
    weighted = [grad.astype(np.float64) * weight for grad, weight in zip(grads, weights, strict=True)]
    for key in set(np.concatenate(keys).tolist()):
        row = merged.keys.tolist().index(key)
        total = sum(part[own == key].sum(axis=0) for part, own in zip(weighted, keys, strict=True))
        np.testing.assert_allclose(merged.grads[row], total, rtol=1e-4, atol=1e-5)
        assert merged.shows[row] == sum(part[own == key].sum() for part, own in zip(shows, keys, strict=True))


def test_order_is_that_of_first_occurrence() -> None:
    keys = [keys_from([9, 2]), keys_from([5, 9])]
    ones = [np.ones(2, dtype=np.float32)] * 2
    merged = merge_contributions(keys, [floats(0, 2, 3), floats(1, 2, 3)], ones, ones, [1.0, 0.5])
    assert merged.keys.tolist() == [9, 2, 5]
    assert merged.shows.tolist() == [2.0, 1.0, 1.0]


def test_bad_contributions_are_refused_by_name() -> None:
    keys, ones = keys_from([1, 2]), np.ones(2, dtype=np.float32)
    good = floats(0, 2, 3)
    cases: list[tuple[str, Contributions]] = [
        ("keys", ([], [], [], [], [])),
        ("weights", ([keys], [good], [ones], [ones], [])),
        ("grads[1]", ([keys, keys], [good, floats(0, 2, 4)], [ones, ones], [ones, ones], [1.0, 1.0])),
        ("grads[0]", ([keys], [floats(0, 3, 3)], [ones], [ones], [1.0])),
        ("shows[0]", ([keys], [good], [ones[:1]], [ones], [1.0])),
        ("clicks[0]", ([keys], [good], [ones], [ones[:1]], [1.0])),
        ("weights[0]", ([keys], [good], [ones], [ones], [float("nan")])),
    ]
    for argument, parts in cases:
        with pytest.raises(KernelError) as caught:
            merge_contributions(*parts)
        assert caught.value.facts["argument"] == argument
