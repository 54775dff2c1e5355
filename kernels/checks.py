"""Checks of the arrays handed to kernels: what is wrong is named, nothing is converted in silence."""

from __future__ import annotations

from typing import Any

import numpy as np

from geartrain.errors import KernelError
from geartrain.types import Indices, Keys, Places
from kernels.explain import native


def require_array(argument: str, array: Any, dtype: type[np.generic], *shape: int | None) -> None:
    """Raise KernelError unless `array` is an aligned, C-contiguous NumPy array of this dtype and shape.

    `None` in `shape` allows any length of that axis.
    """
    if not isinstance(array, np.ndarray):
        raise mismatch(argument, f"a NumPy array of {np.dtype(dtype).name}", type(array).__name__)
    if array.dtype != dtype:
        swapped = "" if array.dtype.isnative else " of the other byte order"
        raise mismatch(argument, f"dtype {np.dtype(dtype).name}", f"dtype {array.dtype.name}{swapped}")
    if array.ndim != len(shape) or any(
        want is not None and got != want for got, want in zip(array.shape, shape, strict=True)
    ):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise mismatch(argument, f"shape [{wanted}]", f"shape {list(array.shape)}")
    if not array.flags.c_contiguous:
        raise mismatch(argument, "a C-contiguous array", f"strides {list(array.strides)}")
    if not array.flags.aligned:
        raise mismatch(argument, f"memory aligned to {array.dtype.alignment} bytes", "an unaligned view")


def require_output(argument: str, array: Any, dtype: type[np.generic], *shape: int | None) -> None:
    """As `require_array`, and the array must be writable."""
    require_array(argument, array, dtype, *shape)
    if not array.flags.writeable:
        raise mismatch(argument, "a writable array", "a read-only array")


def require_places(argument: str, keys: Keys) -> None:
    """Raise KernelError unless `keys` are fewer than 2**31, so that 32 bits number them."""
    if len(keys) >= 2**31:
        raise mismatch(argument, "fewer than 2**31 keys", len(keys))


def require_counts(argument: str, counts: Indices, total: int) -> None:
    """Raise KernelError unless `counts` int64 are >= 0 and add up to `total`; sums beyond 64 bits do not pass."""
    if counts.min(initial=0) < 0 or counts.max(initial=0) > total or sum(counts.tolist()) != total:
        raise mismatch(argument, f"counts >= 0 of {total} keys in all", str(counts.tolist()))


def require_offsets(argument: str, offsets: Indices | Places, stop: int) -> None:
    """Raise KernelError unless `offsets` int64 or int32[>= 1] rise from 0 to `stop` without falling."""
    if len(offsets) == 0:
        raise mismatch(argument, "at least one offset", "none")
    position = 0 if offsets[0] != 0 else native.first_fall(offsets.astype(np.int64, copy=False), stop)
    if position >= 0:
        raise mismatch(argument, f"offsets that rise from 0 to {stop}", int(offsets[position]), position=position)


def require_range(argument: str, values: Indices | Places, stop: int) -> None:
    """Raise KernelError unless all `values` int64 or int32 are in [0, stop)."""
    position = native.first_outside(values.astype(np.int64, copy=False), stop)
    if position >= 0:
        raise mismatch(argument, f"values in [0, {stop})", int(values[position]), position=position)


def mismatch(argument: str, expected: str, got: object, **facts: Any) -> KernelError:
    """The KernelError for `argument`, in the one wording that all kernels use."""
    plain = got if isinstance(got, int | float | str) else str(got)
    where = f" at position {facts['position']}" if "position" in facts else ""
    message = f"{argument}: expected {expected}, got {plain}{where}"
    return KernelError(message, argument=argument, expected=expected, got=plain, **facts)
