"""Pooling of pulled rows into one vector per sample and slot, its gradient, and the counts of shows and clicks.

Letters: B samples, S slots, N keys, U unique keys, D dim. Bags are slot-major: bag s * B + b belongs to slot s and
sample b and has the keys `[bag_offsets[bag], bag_offsets[bag + 1])`. Without offsets every bag has one key, bag i key
i; that there are none to be read makes pooling a tenth faster. Sums run over keys in this order, always.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats, Places
from kernels.checks import mismatch, require_array, require_offsets, require_output, require_range
from kernels.explain import native

SlotFlags = NDArray[np.uint8]


def pool_forward(
    rows: Floats,
    inverse: Places,
    bag_offsets: Places | None,
    mean_slots: SlotFlags,
    num_samples: int,
    out: Floats | None = None,
) -> Floats:
    """Sum (or mean, where `mean_slots[s]` is not 0) of each bag's rows; an empty bag gives zeros.

    `rows` float32[U, D]; `inverse` int32[N] in [0, U); `bag_offsets` int32[S * B + 1] or None; `mean_slots` uint8[S];
    `out` float32[B, S, D] is filled when given, else a new array. Raises KernelError on another dtype, shape or range;
    then `out` may be half filled.
    """
    require_array("rows", rows, np.float32, None, None)
    require_array("mean_slots", mean_slots, np.uint8, None)
    _require_number("num_samples", num_samples)
    _require_arrays(inverse, bag_offsets, len(mean_slots) * num_samples)
    shape = (num_samples, len(mean_slots), rows.shape[1])
    if out is None:
        out = np.empty(shape, dtype=np.float32)
    require_output("out", out, np.float32, *shape)
    if not native.pool_forward(rows, inverse, bag_offsets, mean_slots, out):
        _refuse(inverse, len(rows), bag_offsets)
    return out


def pool_backward(
    grad: Floats, inverse: Places, bag_offsets: Places | None, mean_slots: SlotFlags, num_unique: int
) -> Floats:
    """The gradient of `pool_forward` for `rows`, summed per unique key.

    `grad` float32[B, S, D]; the rest as in `pool_forward`. Returns a new float32[num_unique, D]. Raises KernelError on
    another dtype, shape or range.
    """
    require_array("grad", grad, np.float32, None, None, None)
    require_array("mean_slots", mean_slots, np.uint8, grad.shape[1])
    _require_number("num_unique", num_unique)
    _require_arrays(inverse, bag_offsets, grad.shape[0] * grad.shape[1])
    sums = np.empty((num_unique, grad.shape[2]), dtype=np.float32)
    if not native.pool_backward(grad, inverse, bag_offsets, mean_slots, sums):
        _refuse(inverse, num_unique, bag_offsets)
    return sums


def count_shows(inverse: Places, bag_offsets: Places | None, labels: Floats, num_unique: int) -> tuple[Floats, Floats]:
    """How often each unique key occurs (shows), and the sum of the labels of those samples (clicks).

    `labels` float32[B]; the rest as in `pool_forward`. Returns new float32[num_unique] twice. Raises KernelError on
    another dtype, shape or range.
    """
    require_array("labels", labels, np.float32, None)
    require_array("inverse", inverse, np.int32, None)
    _require_number("num_unique", num_unique)
    argument, num_bags = "inverse", len(inverse)
    if bag_offsets is not None:
        require_array("bag_offsets", bag_offsets, np.int32, None)
        argument, num_bags = "bag_offsets", len(bag_offsets) - 1
    if num_bags < 0 or (num_bags % len(labels) if len(labels) else num_bags > 0):
        raise mismatch(argument, f"a multiple of {len(labels)} bags", f"{num_bags} bags")
    _require_arrays(inverse, bag_offsets, num_bags)
    shows = np.empty(num_unique, dtype=np.float32)
    clicks = np.empty(num_unique, dtype=np.float32)
    if not native.count_shows(inverse, bag_offsets, labels, shows, clicks):
        _refuse(inverse, num_unique, bag_offsets)
    return shows, clicks


def _require_number(argument: str, number: int) -> None:
    if number < 0:
        raise mismatch(argument, "a number >= 0", number)


def _require_arrays(inverse: Places, bag_offsets: Places | None, num_bags: int) -> None:
    if bag_offsets is None:
        require_array("inverse", inverse, np.int32, num_bags)
        return
    require_array("inverse", inverse, np.int32, None)
    require_array("bag_offsets", bag_offsets, np.int32, num_bags + 1)


def _refuse(inverse: Places, num_rows: int, bag_offsets: Places | None) -> NoReturn:
    """Say what is out of range, which the kernel found while it worked."""
    if bag_offsets is not None:
        require_offsets("bag_offsets", bag_offsets, len(inverse))
    require_range("inverse", inverse, num_rows)
    raise AssertionError("the kernel found keys out of range where there are none")
