"""NumPy definition of rows of 16-bit values: widened to float32 for reading, rounded stochastically when stored.

Rounding to nearest would lose every update that is smaller than half a step of the format; here a value goes up with
the probability of its distance from the value below (Gupta et al. 2015), so that sums of small updates are right on
average. What looks random is a hash of (seed, key, version, column), so a row's value depends on nothing else. A value
that the format has is stored as it is.

Letters: N rows, D dim.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats, Keys
from kernels.reference.hashing import GOLDEN, mix64

Words = NDArray[np.uint32]

SIGN = np.uint32(0x8000)
BF16_INFINITY, BF16_LARGEST, BF16_QUIET = np.uint32(0x7F80), np.uint32(0x7F7F), np.uint32(0x0040)
FP16_INFINITY, FP16_LARGEST, FP16_NAN = np.uint32(0x7C00), np.uint32(0x7BFF), np.uint32(0x7E00)
FP16_MAX = np.float32(65504)
FP16_MIN_NORMAL = np.float32(2.0**-14)
FP16_STEPS = np.float32(2.0**24)
"""Steps of a subnormal fp16 in 1."""
FP16_EXPONENT_SHIFT = np.uint32((127 - 15) << 10)


def widen(stored: NDArray[Any], row_dtype: str) -> Floats:
    """float32 of what is stored, exactly; always a new array."""
    if row_dtype == "bf16":
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32)


def narrow(values: Floats, row_dtype: str, keys: Keys, seed: int, version: int) -> NDArray[Any]:
    """What is stored for the rows of `keys` [N] after an update at `version`."""
    if row_dtype == "fp32":
        return values
    random = random_bits(keys, values.shape[1], seed, version)
    if row_dtype == "bf16":
        return _bf16(values, random).astype(np.uint16)
    return _fp16(values, random).astype(np.uint16).view(np.float16)


def random_bits(keys: Keys, dim: int, seed: int, version: int) -> Words:
    """16 bits for each column, uint32 [N, D]: four columns share a hash, the first takes its lowest bits."""
    base = mix64(mix64(keys ^ np.uint64(seed)) ^ np.uint64(version))
    columns = np.arange(dim, dtype=np.uint64)
    hashes = mix64(base[:, None] + (columns // np.uint64(4) + np.uint64(1)) * GOLDEN)
    bits = hashes >> (columns % np.uint64(4) * np.uint64(16))
    return (bits & np.uint64(0xFFFF)).astype(np.uint32)


def _bf16(values: Floats, random: Words) -> Words:
    """The random bits are added to the 16 that go; a carry beyond the largest finite value stops there."""
    bits = values.view(np.uint32)
    truncated = bits >> np.uint32(16)
    quiet = np.where(np.isnan(values), BF16_QUIET, np.uint32(0))
    with np.errstate(over="ignore"):
        carried = (bits + random) >> np.uint32(16)
    infinite = (carried & BF16_INFINITY) == BF16_INFINITY
    finite = np.where(infinite, (truncated & SIGN) | BF16_LARGEST, carried)
    return np.where(np.isfinite(values), finite, truncated | quiet)


def _fp16(values: Floats, random: Words) -> Words:
    """As bf16, with 13 bits that go. Below 2**-14 all steps are equal; 65504 is the largest value, also of infinity."""
    size = np.abs(values)
    bits = size.view(np.uint32)
    normal = ((bits + (random >> np.uint32(3))) >> np.uint32(13)) - FP16_EXPONENT_SHIFT
    normal = np.where(normal >= FP16_INFINITY, FP16_LARGEST, normal)
    small = np.where(size < FP16_MIN_NORMAL, size, np.float32(0)) * FP16_STEPS
    below = np.floor(small)
    up = (small - below) > random.astype(np.float32) * np.float32(2.0**-16)
    subnormal = below.astype(np.uint32) + up
    chosen = np.where(size >= FP16_MIN_NORMAL, normal, subnormal)
    chosen = np.where(size >= FP16_MAX, FP16_LARGEST, chosen)
    chosen = np.where(np.isnan(values), FP16_NAN, chosen)
    sign = np.where(np.signbit(values), SIGN, np.uint32(0))
    return (chosen | sign).astype(np.uint32)
