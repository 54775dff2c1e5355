"""Definition of deduplication in order of first occurrence, and of repeated keys."""

from __future__ import annotations

import numpy as np

from geartrain.types import Indices, Keys, Places


def deduplicate(keys: Keys) -> tuple[Keys, Places]:
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    return keys[first[order]], rank[inverse.reshape(-1)]


def first_repeated(keys: Keys, counts: Indices) -> int:
    stop = 0
    for count in counts:
        start, stop = stop, stop + count
        seen: set[int] = set()
        for position, key in enumerate(keys[start:stop].tolist(), start):
            if key in seen:
                return position
            seen.add(key)
    return -1
