"""Initial values of rows: a pure function of (job seed, table, key, column), so a row can be read before its birth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from geartrain.types import Floats, Keys
from kernels.checks import mismatch, require_array
from kernels.explain import native
from kernels.hashing import mix64, table_seed

INITIALIZER_KINDS = ("zero", "uniform", "normal")


@dataclass(frozen=True, slots=True)
class Initializer:
    """How a table's rows begin.

    `kind`: zero, uniform (in [-scale, scale)) or normal (standard deviation `scale`). `seed` in [0, 2**64) already
    mixes the job's seed and the table, see `initializer_seed`. Raises KernelError on anything else.
    """

    kind: str
    scale: float
    seed: int

    def __post_init__(self) -> None:
        if self.kind not in INITIALIZER_KINDS:
            raise mismatch("kind", f"one of {', '.join(INITIALIZER_KINDS)}", self.kind)
        if not (math.isfinite(self.scale) and self.scale >= 0):
            raise mismatch("scale", "a finite number >= 0", self.scale)
        if not 0 <= self.seed < 2**64:
            raise mismatch("seed", "an integer in [0, 2**64)", self.seed)


def initializer_seed(seed: int, table: str) -> int:
    """The seed of a table's initial values, from the job's seed (any integer, taken modulo 2**64) and its name."""
    mixed = mix64(np.array([seed % 2**64], dtype=np.uint64)) ^ np.uint64(table_seed(table))
    return int(mix64(mixed)[0])


def initial_rows(keys: Keys, dim: int, initializer: Initializer) -> Floats:
    """The values that rows have before their first update.

    `keys` uint64[N]; returns a new float32[N, dim]. Raises KernelError on another dtype or shape, or dim < 1.
    """
    require_array("keys", keys, np.uint64, None)
    if dim < 1:
        raise mismatch("dim", "an integer >= 1", dim)
    rows = np.empty((len(keys), dim), dtype=np.float32)
    native.initial_rows(keys, native_initializer(initializer), rows)
    return rows


def native_initializer(initializer: Initializer) -> native.Initializer:
    """The compiled kernels' form of `initializer`."""
    kind = getattr(native.Initializer.Kind, initializer.kind)
    return native.Initializer(kind, initializer.scale, initializer.seed)
