"""Deduplication of keys."""

from __future__ import annotations

import numpy as np

from geartrain.types import Indices, Keys
from kernels.checks import require_array
from kernels.explain import native


def deduplicate(keys: Keys) -> tuple[Keys, Indices]:
    """The distinct keys in order of first occurrence, and where each key went: `unique[inverse] == keys`.

    `keys` uint64[N], any values; returns new arrays unique uint64[U], inverse int64[N]. Raises KernelError on another
    dtype or shape.
    """
    require_array("keys", keys, np.uint64, None)
    unique = np.empty_like(keys)
    inverse = np.empty(len(keys), dtype=np.int64)
    num_unique = native.deduplicate(keys, unique, inverse)
    return unique[:num_unique], inverse
