"""NumPy definition of initial rows: a counter-based generator that uses only exactly rounded operations.

No library `log` or `cos` is called, because those differ between machines in the last bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats, Keys
from kernels.reference.hashing import GOLDEN, mix64

_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_COSINE = (
    3.4377391790986044e-15,
    -5.294400200734619e-13,
    6.565963114979468e-11,
    -6.386603083791849e-09,
    4.710874778818169e-07,
    -2.5202042373060596e-05,
    0.0009192602748394263,
    -0.020863480763352957,
    0.253669507901048,
    -1.2337005501361697,
    1.0,
)
"""Taylor coefficients of cos(pi/2 t) in powers of t**2, highest first; 3e-16 on [0, 1]."""

Doubles = NDArray[np.float64]


def initial_rows(keys: Keys, dim: int, kind: str, scale: float, seed: int) -> Floats:
    if kind == "zero":
        return np.zeros((len(keys), dim), dtype=np.float32)
    state = mix64(keys ^ np.uint64(seed))
    columns = (np.arange(dim, dtype=np.uint64) + np.uint64(1)) * GOLDEN
    bits = mix64(state[:, None] + columns[None, :])
    return _uniform(bits, scale) if kind == "uniform" else _normal(bits, scale)


def _uniform(bits: Keys, scale: float) -> Floats:
    """The 24 highest bits as a number of the grid [-scale, scale) with step scale / 2**23."""
    centered = (bits >> np.uint64(40)).astype(np.int32) - np.int32(1 << 23)
    return centered.astype(np.float32) * np.float32(scale * 2.0**-23)


def _normal(bits: Keys, scale: float) -> Floats:
    """Box-Muller: the high half is the radius, the low half the angle (2 bits quadrant, 30 bits within it)."""
    radius = np.sqrt(-2.0 * _log_fraction(2 * (bits >> np.uint64(32)) + np.uint64(1)))
    quadrant = (bits >> np.uint64(30)) & np.uint64(3)
    turn = (bits & np.uint64((1 << 30) - 1)).astype(np.float64) * 2.0**-30
    mirrored = (quadrant & np.uint64(1)) == 1
    cosine = _polynomial(np.square(np.where(mirrored, 1.0 - turn, turn)), _COSINE)
    negative = (quadrant == 1) | (quadrant == 2)
    return (radius * np.where(negative, -cosine, cosine) * scale).astype(np.float32)


def _log_fraction(numerators: Keys) -> Doubles:
    """Natural logarithm of `numerators / 2**33`, by 2 atanh((m - 1) / (m + 1)) of the mantissa m near 1."""
    mantissa, exponent = np.frexp(numerators.astype(np.float64))
    small = mantissa < _SQRT_HALF
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    exponent = np.where(small, exponent - 1, exponent) - 33
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    series = _polynomial(ratio * ratio, tuple(1.0 / odd for odd in range(19, 0, -2)))
    return exponent.astype(np.float64) * _LN2 + 2.0 * ratio * series


def _polynomial(x: Doubles, coefficients: tuple[float, ...]) -> Doubles:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
