"""The merge of several workers' sparse gradients into one per key.

Letters: N keys of one contribution, U unique keys, D dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geartrain.types import Floats, Keys
from kernels.checks import mismatch, require_array
from kernels.dedup import deduplicate
from kernels.explain import native


@dataclass(frozen=True, slots=True)
class Merged:
    """One sum per key: `keys` uint64[U] by first occurrence, `grads` float32[U, D], `shows` and `clicks` float32[U]."""

    keys: Keys
    grads: Floats
    shows: Floats
    clicks: Floats


def merge_contributions(
    keys: Sequence[Keys],
    grads: Sequence[Floats],
    shows: Sequence[Floats],
    clicks: Sequence[Floats],
    weights: Sequence[float],
) -> Merged:
    """Sum contributions per key in the order of the lists; gradients are multiplied by their contribution's weight.

    Contribution i: `keys[i]` uint64[N], `grads[i]` float32[N, D], `shows[i]` and `clicks[i]` float32[N] (not
    weighted), `weights[i]` finite. A key may occur in several and more than once in one. At least one contribution, all
    of the same D. Returns new arrays. Raises KernelError on another dtype, shape or number.
    """
    if not keys:
        raise mismatch("keys", "at least one contribution", "none")
    for name, parts in (("grads", grads), ("shows", shows), ("clicks", clicks), ("weights", weights)):
        if len(parts) != len(keys):
            raise mismatch(name, f"{len(keys)} contributions, as in keys", len(parts))
    require_array("grads[0]", grads[0], np.float32, None, None)
    dim = grads[0].shape[1]
    for i in range(len(keys)):
        require_array(f"keys[{i}]", keys[i], np.uint64, None)
        require_array(f"grads[{i}]", grads[i], np.float32, len(keys[i]), dim)
        require_array(f"shows[{i}]", shows[i], np.float32, len(keys[i]))
        require_array(f"clicks[{i}]", clicks[i], np.float32, len(keys[i]))
        if not math.isfinite(weights[i]):
            raise mismatch(f"weights[{i}]", "a finite number", weights[i])
    unique, inverse = deduplicate(np.concatenate(keys) if len(keys) > 1 else keys[0])
    merged = Merged(
        unique,
        np.zeros((len(unique), dim), dtype=np.float32),
        np.zeros(len(unique), dtype=np.float32),
        np.zeros(len(unique), dtype=np.float32),
    )
    start = 0
    for i in range(len(keys)):
        rows = inverse[start : start + len(keys[i])]
        start += len(rows)
        native.add_contribution(
            rows, grads[i], shows[i], clicks[i], weights[i], merged.grads, merged.shows, merged.clicks
        )
    return merged
