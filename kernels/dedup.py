"""Deduplication of keys, and whether there is anything to deduplicate."""

from __future__ import annotations

import numpy as np

from geartrain.types import Indices, Keys, Places
from kernels.checks import require_array, require_counts, require_places
from kernels.explain import native


def deduplicate(keys: Keys) -> tuple[Keys, Places]:
    """The distinct keys in order of first occurrence, and where each key went: `unique[inverse] == keys`.

    `keys` uint64[N], N < 2**31, any values; returns new arrays unique uint64[U], inverse int32[N]. Raises KernelError
    on more keys, another dtype or shape.
    """
    require_array("keys", keys, np.uint64, None)
    require_places("keys", keys)
    unique = np.empty_like(keys)
    inverse = np.empty(len(keys), dtype=np.int32)
    num_unique = native.deduplicate(keys, unique, inverse)
    return unique[:num_unique], inverse


def first_repeated(keys: Keys, counts: Indices) -> int:
    """The first position of a key that is in its range already, -1 when the keys of each range are all different.

    `keys` uint64[N], N < 2**31; `counts` int64[R] >= 0: range r has the next `counts[r]` of them, all together N.
    Raises KernelError on more keys, another dtype or shape, or counts of another sum.
    """
    require_array("keys", keys, np.uint64, None)
    require_places("keys", keys)
    require_array("counts", counts, np.int64, None)
    require_counts("counts", counts, len(keys))
    return native.first_repeated(keys, counts)
