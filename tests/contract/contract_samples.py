"""What the contract tests draw their inputs from, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from geartrain.types import Floats, Keys, Places
from kernels.contribution import Contribution

# Slow draws say that the machine is busy, not that a test is wrong.
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(many, max_examples=20)

EXTREME_KEYS = (0, 1, 2, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
key_values = st.sampled_from(EXTREME_KEYS) | st.integers(0, 2**64 - 1)
key_lists = st.lists(st.sampled_from(EXTREME_KEYS), max_size=60) | st.lists(key_values, max_size=60)
seeds = st.integers(0, 2**64 - 1)
dims = st.sampled_from([1, 2, 3, 7, 8, 9, 12, 16, 17, 31, 33])


def keys_from(values: Sequence[int]) -> Keys:
    return np.array(values, dtype=np.uint64)


def unmixed(mixed: int) -> int:
    """The inverse of `mix64`, step by step backwards."""
    mask = 2**64 - 1
    mixed ^= mixed >> 31 ^ mixed >> 62
    mixed = mixed * pow(0x94D049BB133111EB, -1, 2**64) & mask
    mixed ^= mixed >> 27 ^ mixed >> 54
    mixed = mixed * pow(0xBF58476D1CE4E5B9, -1, 2**64) & mask
    return mixed ^ mixed >> 30 ^ mixed >> 60


def shard_keys(shard: int, numbers: Sequence[int]) -> list[int]:
    """Different keys of one shard, whose hashes have these numbers behind the shard's bits."""
    return [unmixed(shard << 54 | number) for number in numbers]


def floats(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def contribution(keys: Keys, dim: int, seed: int, weight: float = 1.0, shows: float | None = None) -> Contribution:
    """One worker's gradients for `keys`; of its shows, some small number for each key if none is given, half click."""
    grads = floats(seed, len(keys), dim)
    counts: Floats = np.ceil(np.abs(floats(seed + 1, len(keys)))) if shows is None else np.full(len(keys), shows, "f4")
    return Contribution(keys, grads, counts, counts * np.float32(0.5), weight)


def assert_same(got: NDArray[Any], expected: NDArray[Any]) -> None:
    """Equal in dtype, shape and every bit."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    assert got.tobytes() == expected.tobytes()


def assert_same_fields(got: Any, expected: Any) -> None:
    """Two dataclasses of arrays, or of dataclasses of arrays, are the same in every bit."""
    for field in fields(expected):
        ours, theirs = getattr(got, field.name), getattr(expected, field.name)
        if isinstance(theirs, np.ndarray):
            assert_same(ours, theirs)
        else:
            assert_same_fields(ours, theirs)


@dataclass(frozen=True)
class Bags:
    """Bags of a batch over `num_unique` rows, slot-major."""

    num_samples: int
    mean_slots: NDArray[np.uint8]
    bag_offsets: Places
    inverse: Places
    num_unique: int


@st.composite
def bags(draw: st.DrawFn) -> Bags:
    """Empty batches, empty bags, single keys, long bags, keys that repeat inside a bag."""
    num_samples = draw(st.sampled_from([0, 1, 2, 17, 64, 65, 150]))
    mean_slots = draw(st.lists(st.integers(0, 1), max_size=4))
    num_bags = num_samples * len(mean_slots)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    longest = draw(st.sampled_from([0, 1, 3, 40]))
    lengths = random.integers(0, longest + 1, num_bags) if draw(st.booleans()) else np.full(num_bags, longest)
    num_unique = draw(st.sampled_from([1, 2, 50]))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    inverse = random.integers(0, num_unique, offsets[-1], dtype=np.int32)
    return Bags(num_samples, np.array(mean_slots, dtype=np.uint8), offsets, inverse, num_unique)
