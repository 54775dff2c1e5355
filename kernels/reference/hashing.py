"""NumPy definition of the hashes. Every constant here is part of the checkpoint format: a change loses all rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from geartrain.types import Indices, Keys

_FIRST_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_MULTIPLIER = np.uint64(0x94D049BB133111EB)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SHARD_SHIFT = np.uint64(54)


def mix64(values: Keys) -> Keys:
    """The bijective finalizer of SplitMix64 (Steele, Lea, Flood 2014; Stafford's "Mix13")."""
    mixed: Keys = values ^ (values >> np.uint64(30))
    mixed = mixed * _FIRST_MULTIPLIER
    mixed = mixed ^ (mixed >> np.uint64(27))
    mixed = mixed * _SECOND_MULTIPLIER
    mixed ^= mixed >> np.uint64(31)
    return mixed


def hash_strings(offsets: Indices, data: np.ndarray, seed: int) -> Keys:
    """Chain `mix64` over the 8-byte little-endian words of each string, the last one padded with zeros.

    The length goes into the start value, so that padding cannot make two strings equal.
    """
    lengths = np.diff(offsets).astype(np.uint64)
    hashes = mix64(np.uint64(seed) ^ (lengths + np.uint64(1)) * GOLDEN)
    for i, (start, stop) in enumerate(pairwise(offsets)):
        text = data[start:stop].tobytes()
        words = np.frombuffer(text + bytes(-len(text) % 8), dtype="<u8")
        for word in words:
            hashes[i : i + 1] = mix64(hashes[i : i + 1] ^ word)
    return hashes


def shard_of(keys: Keys) -> np.ndarray:
    """The shard of each key: the ten highest bits of its mix."""
    return (mix64(keys) >> SHARD_SHIFT).astype(np.uint16)
