"""NumPy definition of the optimizers' updates, in float32, one operation after the other."""

from __future__ import annotations

import numpy as np

from geartrain.types import Floats
from kernels.update_rule import Coefficients

LANES = 8


def state_width(kind: str, dim: int) -> int:
    """Floats of optimizer state per row."""
    return {"sgd": 0, "adagrad": dim, "rowwise_adagrad": 1, "adam": 2 * dim}[kind]


def update(kind: str, values: Floats, states: Floats, grads: Floats, numbers: Coefficients) -> None:
    """Update `values` [N, D] and `states` [N, W] in place from gradient sums `grads` [N, D]."""
    divisor, l2, rate, one_minus_beta1, one_minus_beta2, root_scale, eps = np.array(numbers, dtype=np.float32)
    dim = values.shape[1]
    mean = grads / divisor
    if kind == "average":
        values += rate * (mean - values)
        return
    mean = mean + l2 * values
    if kind == "sgd":
        values -= rate * mean
    elif kind == "adagrad":
        states += mean * mean
        values -= rate * (mean / (np.sqrt(states) + eps))
    elif kind == "rowwise_adagrad":
        states += (_sum_of_squares(mean) / np.float32(dim))[:, None]
        values -= (rate / (np.sqrt(states) + eps)) * mean
    else:
        first, second = states[:, :dim], states[:, dim:]
        first += one_minus_beta1 * (mean - first)
        second += one_minus_beta2 * (mean * mean - second)
        values -= rate * (first / (np.sqrt(second) / root_scale + eps))


def _sum_of_squares(x: Floats) -> Floats:
    """Eight interleaved partial sums, as one AVX register holds them, a tree over them, then the rest one by one."""
    whole = x.shape[1] // LANES * LANES
    lanes = np.zeros((len(x), LANES), dtype=np.float32)
    for start in range(0, whole, LANES):
        lanes += np.square(x[:, start : start + LANES])
    half = lanes[:, :4] + lanes[:, 4:]
    quarter = half[:, :2] + half[:, 2:]
    total: Floats = quarter[:, 0] + quarter[:, 1]
    for column in range(whole, x.shape[1]):
        total += np.square(x[:, column])
    return total
