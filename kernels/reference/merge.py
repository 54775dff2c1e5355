"""NumPy definition of the merge of contributions: sums in list order, keys by first occurrence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geartrain.types import Floats, Keys
from kernels.reference.dedup import deduplicate


def merge_contributions(
    keys: Sequence[Keys],
    grads: Sequence[Floats],
    shows: Sequence[Floats],
    clicks: Sequence[Floats],
    weights: Sequence[float],
) -> tuple[Keys, Floats, Floats, Floats]:
    unique, inverse = deduplicate(np.concatenate(keys))
    weighted = np.concatenate([grad * np.float32(weight) for grad, weight in zip(grads, weights, strict=True)])
    merged = np.zeros((len(unique), weighted.shape[1]), dtype=np.float32)
    np.add.at(merged, inverse, weighted)
    counts = []
    for parts in (shows, clicks):
        counts.append(np.zeros(len(unique), dtype=np.float32))
        np.add.at(counts[-1], inverse, np.concatenate(parts))
    return unique, merged, counts[0], counts[1]
