"""What the contract tests draw their inputs from, and how they compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from geartrain.types import Floats, Indices, Keys

many = settings(max_examples=60, deadline=None)
few = settings(max_examples=20, deadline=None)

EXTREME_KEYS = (0, 1, 2, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
key_values = st.sampled_from(EXTREME_KEYS) | st.integers(0, 2**64 - 1)
key_lists = st.lists(st.sampled_from(EXTREME_KEYS), max_size=60) | st.lists(key_values, max_size=60)
seeds = st.integers(0, 2**64 - 1)
dims = st.sampled_from([1, 2, 3, 7, 8, 9, 12, 16, 17, 31, 33])


def keys_from(values: list[int]) -> Keys:
    return np.array(values, dtype=np.uint64)


def floats(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_same(got: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
    """Equal in dtype, shape and every bit."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    assert got.tobytes() == expected.tobytes()


@dataclass(frozen=True)
class Bags:
    """Bags of a batch over `num_unique` rows, slot-major."""

    num_samples: int
    mean_slots: NDArray[np.uint8]
    bag_offsets: Indices
    inverse: Indices
    num_unique: int


@st.composite
def bags(draw: st.DrawFn) -> Bags:
    """Empty batches, empty bags, single keys, long bags, keys that repeat inside a bag."""
    num_samples = draw(st.sampled_from([0, 1, 2, 5, 17, 40]))
    mean_slots = draw(st.lists(st.integers(0, 1), max_size=4))
    num_bags = num_samples * len(mean_slots)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    longest = draw(st.sampled_from([0, 1, 3, 40]))
    lengths = random.integers(0, longest + 1, num_bags) if draw(st.booleans()) else np.full(num_bags, longest)
    num_unique = draw(st.sampled_from([1, 2, 50]))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    inverse = random.integers(0, num_unique, offsets[-1])
    return Bags(num_samples, np.array(mean_slots, dtype=np.uint8), offsets, inverse, num_unique)
