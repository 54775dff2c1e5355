"""From raw ids to 64-bit keys, and from keys to shards.

A key is made from (table, id). Integers go through a bijection, so two ids of a table never share a key; strings are
hashed to 64 bits (the chance of any collision is 2.7% at 1e9 distinct strings of one table). All of it is part of the
checkpoint format.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Indices, Keys
from kernels.checks import mismatch, require_array
from kernels.explain import native


def mix64(values: Keys) -> Keys:
    """Mix each value into another 64-bit value, one to one (the finalizer of SplitMix64).

    `values` uint64[N]; returns a new uint64[N]. Raises KernelError on another dtype or shape.
    """
    require_array("values", values, np.uint64, None)
    mixed = np.empty_like(values)
    native.mix64(values, mixed)
    return mixed


def hash_strings(offsets: Indices, data: NDArray[np.uint8], seed: int) -> Keys:
    """Hash N byte strings to 64 bits each.

    `offsets` int64[N + 1]: string i is `data[offsets[i]:offsets[i + 1]]`; `data` uint8[M]; `seed` in [0, 2**64).
    Returns a new uint64[N]. Raises KernelError when offsets fall or leave `data`.
    """
    require_array("offsets", offsets, np.int64, None)
    require_array("data", data, np.uint8, None)
    if not 0 <= seed < 2**64:
        raise mismatch("seed", "an integer in [0, 2**64)", seed)
    if len(offsets) == 0:
        raise mismatch("offsets", "at least one offset", "none")
    fall = native.first_fall(offsets, int(offsets[-1]))
    if fall >= 0:
        raise mismatch("offsets", "offsets that never fall", int(offsets[fall]), position=fall)
    if offsets[0] < 0 or offsets[-1] > len(data):
        raise mismatch("offsets", f"offsets within [0, {len(data)}]", f"[{offsets[0]}, {offsets[-1]}]")
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    native.hash_strings(offsets, data, seed, hashes)
    return hashes


def shard_of(keys: Keys) -> NDArray[np.uint16]:
    """The shard of each key, the same in every table: `mix64(key) >> 54`, in [0, 1024).

    `keys` uint64[N]; returns a new uint16[N]. Raises KernelError on another dtype or shape.
    """
    require_array("keys", keys, np.uint64, None)
    shards = np.empty(len(keys), dtype=np.uint16)
    native.shard_of(keys, shards)
    return shards


@lru_cache(maxsize=4096)
def table_seed(name: str) -> int:
    """The seed of a table's keys: the hash of its name with seed 0."""
    data = np.frombuffer(name.encode(), dtype=np.uint8)
    return int(hash_strings(np.array([0, len(data)], dtype=np.int64), data, 0)[0])


def keys_of_integers(ids: NDArray[np.int64] | NDArray[np.uint64], table: str) -> Keys:
    """Keys of integer ids: `mix64(id ^ table_seed(table))`, a bijection on 64-bit patterns (negative ids are legal).

    `ids` int64[N] or uint64[N]; returns a new uint64[N]. Raises KernelError on another dtype or shape.
    """
    signed = isinstance(ids, np.ndarray) and ids.dtype == np.int64
    require_array("ids", ids, np.int64 if signed else np.uint64, None)
    keys = np.empty(len(ids), dtype=np.uint64)
    native.keys_of_integers(ids.view(np.uint64), table_seed(table), keys)
    return keys


def keys_of_strings(offsets: Indices, data: NDArray[np.uint8], table: str) -> Keys:
    """Keys of UTF-8 strings of `table`; arguments, result and errors as in `hash_strings`."""
    return hash_strings(offsets, data, table_seed(table))
