"""NumPy definition of the optimizers' updates, in float32, one operation after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from geartrain.types import Floats
from kernels.update_rule import Coefficients

LANES = 8


class Numbers(NamedTuple):
    """The coefficients, each rounded to float32; [N, 1] where it is another one for each row."""

    divisor: np.float32 | Floats
    l2: np.float32
    rate: np.float32 | Floats
    one_minus_beta1: np.float32
    one_minus_beta2: np.float32
    root_scale: np.float32
    eps: np.float32
    l1: np.float32
    beta: np.float32
    step_scale: np.float32 | Floats
    lr: np.float32
    min_weight: np.float32
    max_weight: np.float32
    most_windows: np.float32


def rounded(coefficients: Coefficients) -> Numbers:
    return Numbers(*(np.float32(number) for number in coefficients))


def over_windows(c: Numbers, windows: Floats) -> Numbers:
    """The numbers for rows whose updates stand for `windows` float32[N] windows each."""
    column = windows[:, None]
    return c._replace(divisor=c.divisor * column, rate=c.rate * column, step_scale=c.step_scale * column)


def state_width(kind: str, dim: int) -> int:
    """Floats of optimizer state per row."""
    widths = {
        "sgd": 0,
        "adagrad": dim,
        "rowwise_adagrad": 1,
        "adam": 2 * dim,  # first moment, second moment
        "rowwise_adam": dim + 1,  # first moment, the row's second moment
        "ftrl": 2 * dim,  # z, n
    }
    return widths[kind]


def update(kind: str, values: Floats, states: Floats, grads: Floats, c: Numbers) -> None:
    """Update `values` [N, D] and `states` [N, W] in place from gradient sums `grads` [N, D]."""
    dim = values.shape[1]
    mean = grads / c.divisor
    if kind == "average":
        values += c.rate * (mean - values)
        return
    if kind == "ftrl":
        _ftrl(values, states[:, :dim], states[:, dim:], mean, c)
        return
    mean = mean + c.l2 * values
    if kind == "sgd":
        values -= c.rate * mean
    elif kind == "adagrad":
        states += mean * mean
        values -= c.rate * (mean / (np.sqrt(states) + c.eps))
    elif kind == "rowwise_adagrad":
        states += _mean_square(mean)
        values -= (c.rate / (np.sqrt(states) + c.eps)) * mean
    else:
        first, second = states[:, :dim], states[:, dim:]
        square = mean * mean if kind == "adam" else _mean_square(mean)
        first += c.one_minus_beta1 * (mean - first)
        second += c.one_minus_beta2 * (square - second)
        values -= c.rate * (first / (np.sqrt(second) / c.root_scale + c.eps))


def bound(values: Floats, c: Numbers) -> None:
    """Bring what left [min_weight, max_weight] back to its bound, in place; NaN stays."""
    values[values < c.min_weight] = c.min_weight
    values[values > c.max_weight] = c.max_weight


def _ftrl(values: Floats, z: Floats, n: Floats, mean: Floats, c: Numbers) -> None:
    """FTRL-Proximal (McMahan et al. 2013, algorithm 1), moved `step_scale` of the way to its closed-form weights.

    Without a learning rate there are no such weights: everything stays as it is.
    """
    if c.lr == 0:
        return
    next_n = n + mean * mean
    root = np.sqrt(next_n)
    z += mean - (root - np.sqrt(n)) / c.lr * values
    n[:] = next_n
    with np.errstate(divide="ignore", invalid="ignore"):
        target = -(z - np.copysign(c.l1, z)) / ((c.beta + root) / c.lr + c.l2)
    target[np.abs(z) <= c.l1] = 0
    values += c.step_scale * (target - values)


def _mean_square(x: Floats) -> Floats:
    """Mean of the squares of each row, [N, 1].

    Eight interleaved partial sums, as one AVX register holds them, a tree over them, then the rest one by one.
    """
    whole = x.shape[1] // LANES * LANES
    lanes = np.zeros((len(x), LANES), dtype=np.float32)
    for start in range(0, whole, LANES):
        lanes += np.square(x[:, start : start + LANES])
    half = lanes[:, :4] + lanes[:, 4:]
    quarter = half[:, :2] + half[:, 2:]
    total: Floats = quarter[:, 0] + quarter[:, 1]
    for column in range(whole, x.shape[1]):
        total += np.square(x[:, column])
    return (total / np.float32(x.shape[1]))[:, None]
