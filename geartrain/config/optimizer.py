"""Optimizers: each kind has exactly the fields that it uses, so that none is accepted and ignored.

Those of the dense parameters update every value in every window. Those of tables are lazy: a window updates the rows
that it has gradients for, and leaves all others as they are, whatever l2, momentum or decay would do to them meanwhile.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, Strict

from geartrain.config.section import (
    Expect,
    Float32,
    NonNegativeNumber,
    PositiveNumber,
    Section,
    UnitNumber,
    expected,
)

Epsilon = Annotated[float, Field(ge=1e-30), Expect("a number >= 1e-30"), Float32]
"""Added to a denominator: large enough to stay above zero in float32."""


def _rising(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] >= bounds[1]:
        raise expected("[low, high] with low < high")
    return bounds


WeightBounds = Annotated[
    tuple[Annotated[float, Float32], Annotated[float, Float32]],
    Strict(False),
    Expect("two numbers [low, high]"),
    AfterValidator(_rising),
]


class Sgd(Section):
    """p -= lr * g."""

    type: Literal["sgd"]
    lr: PositiveNumber
    """Learning rate before the schedule."""
    l2: NonNegativeNumber = 0.0
    """l2 * value is added to the gradient; on tables to that of the rows that a window touches (lazy)."""


class Adagrad(Section):
    """s += g^2; p -= lr * g / (sqrt(s) + eps), per value (Duchi et al. 2011)."""

    type: Literal["adagrad"]
    lr: PositiveNumber
    """Learning rate before the schedule."""
    l2: NonNegativeNumber = 0.0
    """l2 * value is added to the gradient; on tables to that of the rows that a window touches (lazy)."""
    eps: Epsilon = 1e-10


class Adam(Section):
    """Adam (Kingma and Ba 2015); on tables lazily, for touched rows, with the version as the step number."""

    type: Literal["adam"]
    lr: PositiveNumber
    """Learning rate before the schedule."""
    l2: NonNegativeNumber = 0.0
    """l2 * value is added to the gradient; on tables to that of the rows that a window touches (lazy)."""
    beta1: UnitNumber = 0.9
    """Share of the mean gradient that is kept from step to step."""
    beta2: UnitNumber = 0.999
    """Share of the mean squared gradient that is kept from step to step."""
    eps: Epsilon = 1e-8


class _Bounded(Section):
    weight_bounds: WeightBounds | None = None
    """[low, high]: what a window makes of a value is moved into this range, before it is rounded to the row's dtype.
    Initial values are not."""


class SparseSgd(_Bounded, Sgd):
    """p -= lr * g. No state."""


class SparseAdagrad(_Bounded, Adagrad):
    """s += g^2; p -= lr * g / (sqrt(s) + eps), per value (Duchi et al. 2011). State: a number per value."""


class RowwiseAdagrad(Section):
    """Adagrad with one accumulator per row: the mean of g^2 over the row. State: a number per row."""

    type: Literal["rowwise_adagrad"]
    lr: PositiveNumber
    """Learning rate before the schedule."""
    l2: NonNegativeNumber = 0.0
    """l2 * value is added to the gradient of the rows that a window touches (lazy)."""
    eps: Epsilon = 1e-8
    weight_bounds: WeightBounds | None = None
    """[low, high]: what a window makes of a value is moved into this range, before it is rounded to the row's dtype.
    Initial values are not."""


class SparseAdam(_Bounded, Adam):
    """Adam (Kingma and Ba 2015), lazy, with the version as the step number. State: two numbers per value."""


class RowwiseAdam(Section):
    """Adam with one second moment per row: the mean of g^2 over the row. State: a number per value and one per row."""

    type: Literal["rowwise_adam"]
    lr: PositiveNumber
    """Learning rate before the schedule."""
    l2: NonNegativeNumber = 0.0
    """l2 * value is added to the gradient of the rows that a window touches (lazy)."""
    beta1: UnitNumber = 0.9
    """Share of the mean gradient that is kept from step to step."""
    beta2: UnitNumber = 0.999
    """Share of the mean squared gradient that is kept from step to step."""
    eps: Epsilon = 1e-8
    weight_bounds: WeightBounds | None = None
    """[low, high]: what a window makes of a value is moved into this range, before it is rounded to the row's dtype.
    Initial values are not."""


class Ftrl(Section):
    """FTRL-proximal, per value (McMahan et al. 2013): values whose sum of gradients stays below l1 become exactly 0.

    State: two numbers per value.
    """

    type: Literal["ftrl"]
    lr: PositiveNumber
    """The paper's alpha, before the schedule."""
    l1: NonNegativeNumber = 0.0
    """How large a value's accumulated gradient must be for the value to differ from 0."""
    l2: NonNegativeNumber = 0.0
    """In the proximal term, as in the paper: it is added to the divisor (beta + sqrt(n)) / lr, not to the gradient."""
    beta: Epsilon = 1.0
    """Slows the first steps: the larger, the smaller they are. Never 0: it keeps the divisor above zero."""
    weight_bounds: WeightBounds | None = None
    """[low, high]: what a window makes of a value is moved into this range, before it is rounded to the row's dtype.
    Initial values are not."""


DenseOptimizer: TypeAlias = Annotated[Sgd | Adagrad | Adam, Field(discriminator="type")]
SparseOptimizer: TypeAlias = Annotated[
    SparseSgd | SparseAdagrad | RowwiseAdagrad | SparseAdam | RowwiseAdam | Ftrl, Field(discriminator="type")
]
