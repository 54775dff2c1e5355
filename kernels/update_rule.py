"""What an optimizer's step needs, and the float32 numbers that every implementation of it computes with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from kernels.checks import mismatch

SPARSE_KINDS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl")
DENSE_KINDS = ("sgd", "adagrad", "adam", "average")

AVERAGE_MOMENTUM = 0.1
"""Weight of a step's mean in the running moments of batch norm."""


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """One application of an optimizer to gradient sums.

    `lr` learning rate; `l2` is added as `l2 * parameter` to the gradient; `step_scale` multiplies the update;
    `divisor` (> 0) turns gradient sums into means; `beta1`, `beta2`, `eps` as in the optimizer's paper; `step` >= 1 is
    Adam's t. `l1` and `beta` are FTRL's, whose alpha is `lr` and whose lambda2 is `l2`. Rows, not dense blocks, are
    kept in [`min_weight`, `max_weight`] by every update. A row's update stands for the windows since its last one, of
    which `most_windows` (>= 1) make a whole step: for k of them the divisor and the step scale are k times as large.
    Raises KernelError on numbers that cannot be used.
    """

    lr: float
    l2: float = 0.0
    step_scale: float = 1.0
    divisor: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    step: int = 1
    l1: float = 0.0
    beta: float = 1.0
    min_weight: float = -math.inf
    max_weight: float = math.inf
    most_windows: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lr", "l2", "step_scale", "eps", "l1", "beta"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise mismatch(name, "a finite number >= 0", value)
        if not (math.isfinite(self.divisor) and self.divisor > 0):
            raise mismatch("divisor", "a finite number > 0", self.divisor)
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise mismatch(name, "a number in [0, 1)", getattr(self, name))
        if not (math.isfinite(self.most_windows) and self.most_windows >= 1):
            raise mismatch("most_windows", "a finite number >= 1", self.most_windows)
        if self.step < 1:
            raise mismatch("step", "an integer >= 1", self.step)
        if not -math.inf <= self.min_weight < math.inf:
            raise mismatch("min_weight", "a finite number, or -inf for no bound", self.min_weight)
        if not self.min_weight <= self.max_weight or self.max_weight == -math.inf:
            raise mismatch("max_weight", f"a number >= min_weight ({self.min_weight})", self.max_weight)


class Coefficients(NamedTuple):
    """The numbers of an update, in double; implementations round each to float32 once, before any arithmetic.

    `rate` multiplies the optimizer's direction, in FTRL `step_scale` and `lr` are used instead; `root_scale` divides
    Adam's root before eps is added. The others are those of the rule.
    """

    divisor: float
    l2: float
    rate: float
    one_minus_beta1: float
    one_minus_beta2: float
    root_scale: float
    eps: float
    l1: float
    beta: float
    step_scale: float
    lr: float
    min_weight: float
    max_weight: float
    most_windows: float


def sparse_coefficients(kind: str, rule: UpdateRule) -> Coefficients:
    """The numbers for rows. Adam is torch.optim.SparseAdam: eps is added to the uncorrected root."""
    rate = rule.lr * rule.step_scale
    if kind in ("adam", "rowwise_adam"):
        rate *= math.sqrt(1 - rule.beta2**rule.step) / (1 - rule.beta1**rule.step)
    return _coefficients(rule, rate, 1.0)


def dense_coefficients(kind: str, rule: UpdateRule) -> Coefficients:
    """The numbers for dense blocks. Adam is torch.optim.Adam: eps is added to the corrected root."""
    if kind == "average":
        return _coefficients(rule, rule.step_scale * AVERAGE_MOMENTUM, 1.0)
    rate, root_scale = rule.lr * rule.step_scale, 1.0
    if kind == "adam":
        rate /= 1 - rule.beta1**rule.step
        root_scale = math.sqrt(1 - rule.beta2**rule.step)
    return _coefficients(rule, rate, root_scale)


def _coefficients(rule: UpdateRule, rate: float, root_scale: float) -> Coefficients:
    return Coefficients(
        divisor=rule.divisor,
        l2=rule.l2,
        rate=rate,
        one_minus_beta1=1 - rule.beta1,
        one_minus_beta2=1 - rule.beta2,
        root_scale=root_scale,
        eps=rule.eps,
        l1=rule.l1,
        beta=rule.beta,
        step_scale=rule.step_scale,
        lr=rule.lr,
        min_weight=rule.min_weight,
        max_weight=rule.max_weight,
        most_windows=rule.most_windows,
    )
