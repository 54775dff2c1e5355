"""Dense blocks: cut anywhere, the same numbers; a gradient that does not cover them is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedding_tier.dense_blocks import DenseBlock, DenseGradient
from embedding_tier.optimizer import Optimizer
from geartrain.errors import ConflictError, VersionError, WireError
from geartrain.types import Floats
from geartrain.wire.messages import Apply, DenseSegment

SEGMENTS = [
    DenseSegment("a.weight", (3, 4), 0, 12, "parameter"),
    DenseSegment("a.bias", (4,), 12, 16, "parameter"),
    DenseSegment("norm.mean", (4,), 16, 20, "average"),
    DenseSegment("norm.mean_square", (4,), 20, 24, "average"),
]
ADAM = Optimizer.from_config({"type": "adam", "lr": 0.1})


def decision(version: int = 1, step_scale: float = 1.0) -> Apply:
    return Apply(
        term=1,
        version=version,
        contributions=[],
        divisor=4.0,
        step_scale=step_scale,
        most_windows=4.0,
        dense_lr=0.1,
        sparse_lr={},
        live_groups=[],
    )


def values_of(seed: int, size: int = 24) -> Floats:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@given(st.lists(st.integers(0, 24), max_size=4), st.lists(st.integers(0, 24), max_size=3), st.integers(0, 9))
def test_the_cut_into_blocks_and_slices_does_not_matter(cuts: list[int], slices: list[int], seed: int) -> None:
    initial, gradients = values_of(seed), [values_of(seed + 1), values_of(seed + 2)]
    whole = DenseBlock(SEGMENTS, 0, 24, ADAM)
    whole.put(0, initial)
    for version, weights in ((1, (1.0, 0.9)), (2, (0.81, 1.0))):
        summed = [DenseGradient([(0, gradient)], weight) for gradient, weight in zip(gradients, weights, strict=True)]
        whole.apply(whole.summed(summed), decision(version))
    bounds, ends = [0, *sorted(cuts), 24], [0, *sorted(slices), 24]
    for start, stop in pairwise(bounds):
        block = DenseBlock(SEGMENTS, start, stop, ADAM)
        block.put(start, initial[start:stop])
        for version, weights in ((1, (1.0, 0.9)), (2, (0.81, 1.0))):
            parts = []
            for gradient, weight in zip(gradients, weights, strict=True):
                pieces = [(max(a, start), min(b, stop)) for a, b in pairwise(ends)]
                mine = [(a, gradient[a:b]) for a, b in reversed(pieces) if a < b]
                parts.append(DenseGradient(mine, weight))
            block.apply(block.summed(parts), decision(version))
        np.testing.assert_array_equal(block.values(), whole.values()[start:stop])
        np.testing.assert_array_equal(block.states(), whole.states()[:, start:stop])


def test_averages_follow_the_mean_of_what_was_pushed() -> None:
    block = DenseBlock(SEGMENTS, 0, 24, ADAM)
    initial, gradient = values_of(1), values_of(2)
    block.put(0, initial)
    block.apply(block.summed([DenseGradient([(0, gradient)], 1.0)]), decision(step_scale=0.5))
    expected = initial[16:] + 0.5 * 0.1 * (gradient[16:] / 4.0 - initial[16:])
    np.testing.assert_allclose(block.values()[16:], expected, rtol=1e-6)
    assert not np.allclose(block.values()[:16], initial[:16])
    assert not block.states()[:, 16:].any()


def test_a_gradient_with_a_gap_or_too_much_is_refused() -> None:
    block = DenseBlock(SEGMENTS, 4, 8, ADAM)
    ones = np.ones(4, dtype=np.float32)
    for slices in ([], [(4, ones[:3])], [(5, ones[:3])], [(4, ones[:2]), (5, ones[:3])], [(4, ones), (8, ones[:1])]):
        with pytest.raises(VersionError):
            block.summed([DenseGradient(slices, 1.0)])
    np.testing.assert_array_equal(block.summed([DenseGradient([(6, ones[:2]), (4, ones[:2])], 2.0)]), 2 * ones)
    np.testing.assert_array_equal(block.summed([]), 0 * ones)


def test_values_are_not_read_before_they_are_put() -> None:
    block = DenseBlock(SEGMENTS, 0, 12, ADAM)
    with pytest.raises(ConflictError):
        block.values()
    with pytest.raises(WireError):
        block.put(0, np.zeros(11, dtype=np.float32))
    with pytest.raises(WireError):
        block.put(1, np.zeros(12, dtype=np.float32))
    block.put(0, np.zeros(12, dtype=np.float32))
    assert len(DenseBlock(SEGMENTS, 12, 12, ADAM).values()) == 0


def test_initial_values_that_are_put_again_do_not_undo_training() -> None:
    block = DenseBlock(SEGMENTS, 0, 24, ADAM)
    block.put(0, values_of(1))
    block.apply(block.summed([DenseGradient([(0, values_of(2))], 1.0)]), decision())
    trained = block.values()
    block.put(0, values_of(1))
    np.testing.assert_array_equal(block.values(), trained)


def test_segments_must_cover_the_block() -> None:
    with pytest.raises(WireError, match="end at 24"):
        DenseBlock(SEGMENTS, 0, 25, ADAM)
    with pytest.raises(WireError, match=r"norm\.mean"):
        DenseBlock([SEGMENTS[0], SEGMENTS[2]], 0, 20, ADAM)
