"""NumPy definition of how rows are encoded on the wire; formats and bounds are stated in kernels/wire_codec.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats

Bytes = NDArray[np.uint8]

# float32 as the integer of its bits; masks and biases of its fields.
MAGNITUDE, INFINITY = np.uint32(0x7FFF_FFFF), np.uint32(0x7F80_0000)
MANTISSA_BITS, BIAS = 23, 127

LEAST_EXPONENT = 15
"""Biased. Of smaller values, what makes them large is no float32; they keep their precision all the same."""
TOP_EXPONENT = 14
"""The largest value of a scaled row lies in [2**14, 2**15)."""
LARGEST_HALF, LARGEST_BF16 = np.uint16(0x77FF), np.uint32(0x7F7F)
STEPS = np.float32(255)


def encode_fp16(rows: Floats) -> Bytes:
    exponent = _exponent(rows)
    halves = (rows * _scale(exponent)).astype(np.float16).view(np.uint16)
    magnitude = np.minimum(halves & np.uint16(0x7FFF), LARGEST_HALF)
    return np.hstack([_bytes(magnitude | (halves & np.uint16(0x8000))), _bytes((exponent << 7).astype(np.uint16))])


def decode_fp16(encoded: Bytes) -> Floats:
    halves = encoded[:, :-2].copy().view(np.float16)
    exponent = encoded[:, -2:].copy().view(np.uint16) >> 7
    return halves.astype(np.float32) * _unscale(exponent.astype(np.int64))


def is_fp16(encoded: Bytes) -> NDArray[np.bool_]:
    halves = encoded.copy().view(np.uint16)
    scale = halves[:, -1]
    exponent = scale >> 7
    small = ((halves[:, :-1] & np.uint16(0x7FFF)) <= LARGEST_HALF).all(axis=1)
    fits: NDArray[np.bool_] = small & (scale & np.uint16(0x7F) == 0) & (exponent >= LEAST_EXPONENT) & (exponent <= 254)
    return fits


def encode_bf16(rows: Floats) -> Bytes:
    bits = rows.view(np.uint32)
    magnitude = bits & MAGNITUDE
    to_even = np.uint32(0x7FFF) + ((magnitude >> 16) & np.uint32(1))
    rounded = np.minimum((magnitude + to_even) >> 16, LARGEST_BF16)
    return _bytes((rounded | ((bits & ~MAGNITUDE) >> 16)).astype(np.uint16))


def decode_bf16(encoded: Bytes) -> Floats:
    return (encoded.copy().view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def is_bf16(encoded: Bytes) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(decode_bf16(encoded)).all(axis=1))


def encode_int8(rows: Floats) -> Bytes:
    # As integers that rise with the values, -0.0 comes before 0.0.
    ordered = _flipped(rows.view(np.int32))
    ends = _flipped(np.stack([ordered.min(axis=1), ordered.max(axis=1)], axis=1)).view(np.float32)
    exponent = _exponent(ends)
    low, high = np.split(ends * _scale(exponent), 2, axis=1)
    width = high - low
    per_value = np.divide(STEPS, width, out=np.zeros_like(width), where=width > 0)
    steps = (rows * _scale(exponent) - low) * per_value + np.float32(0.5)
    return np.hstack([steps.astype(np.uint8), _bytes(ends)])


def decode_int8(encoded: Bytes) -> Floats:
    ends = encoded[:, -8:].copy().view(np.float32)
    exponent = _exponent(ends)
    low, high = np.split(ends * _scale(exponent), 2, axis=1)
    step = (high - low) * (np.float32(1) / STEPS)
    scaled = encoded[:, :-8].astype(np.float32) * step + low
    rows: Floats = np.where(scaled < high, scaled, high) * _unscale(exponent)
    return rows


def is_int8(encoded: Bytes) -> NDArray[np.bool_]:
    ends = encoded[:, -8:].copy().view(np.float32)
    return np.asarray(np.isfinite(ends).all(axis=1) & (ends[:, 0] <= ends[:, 1]))


ENCODERS: dict[str, Callable[[Floats], Bytes]] = {"fp16": encode_fp16, "bf16": encode_bf16, "int8": encode_int8}
DECODERS: dict[str, Callable[[Bytes], Floats]] = {"fp16": decode_fp16, "bf16": decode_bf16, "int8": decode_int8}
CHECKS: dict[str, Callable[[Bytes], NDArray[np.bool_]]] = {"fp16": is_fp16, "bf16": is_bf16, "int8": is_int8}


def _exponent(rows: Floats) -> NDArray[np.int64]:
    """Biased, [N, 1], of each row's largest magnitude."""
    largest: NDArray[np.uint32] = (rows.view(np.uint32) & MAGNITUDE).max(axis=1, keepdims=True)
    exponent: NDArray[np.int64] = np.maximum(largest >> MANTISSA_BITS, LEAST_EXPONENT).astype(np.int64)
    return exponent


def _scale(exponent: NDArray[np.int64]) -> Floats:
    """What brings a value of this exponent into [2**14, 2**15)."""
    return _power_of_two(TOP_EXPONENT + BIAS - exponent)


def _unscale(exponent: NDArray[np.int64]) -> Floats:
    return _power_of_two(exponent - BIAS - TOP_EXPONENT)


def _power_of_two(exponent: NDArray[np.int64]) -> Floats:
    return ((exponent + BIAS) << MANTISSA_BITS).astype(np.uint32).view(np.float32)


def _flipped(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """The bits of floats as integers in the order of the floats, and back."""
    return bits ^ ((bits >> 31) & np.int32(0x7FFF_FFFF))


def _bytes(values: NDArray[np.generic]) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8)
