"""Optimizers: each kind has exactly the fields that it uses, so that none is accepted and ignored."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from geartrain.config.section import Expect, Float32, NonNegativeNumber, PositiveNumber, Section, UnitNumber

Epsilon = Annotated[float, Field(ge=1e-30), Expect("a number >= 1e-30"), Float32]
"""Added to a denominator: large enough to stay above zero in float32."""


class _Optimizer(Section):
    lr: PositiveNumber
    """Learning rate before the schedule."""
    l2: NonNegativeNumber = 0.0
    """l2 * value is added to the gradient (of the rows that a window touches, for tables)."""


class Sgd(_Optimizer):
    """p -= lr * g."""

    type: Literal["sgd"]


class Adagrad(_Optimizer):
    """s += g^2; p -= lr * g / (sqrt(s) + eps), per value (Duchi et al. 2011)."""

    type: Literal["adagrad"]
    eps: Epsilon = 1e-10


class RowwiseAdagrad(_Optimizer):
    """Adagrad with one accumulator per row: the mean of g^2 over the row."""

    type: Literal["rowwise_adagrad"]
    eps: Epsilon = 1e-8


class Adam(_Optimizer):
    """Adam (Kingma and Ba 2015); on tables lazily, for touched rows, with the version as the step number."""

    type: Literal["adam"]
    beta1: UnitNumber = 0.9
    beta2: UnitNumber = 0.999
    eps: Epsilon = 1e-8


DenseOptimizer: TypeAlias = Annotated[Sgd | Adagrad | Adam, Field(discriminator="type")]
SparseOptimizer: TypeAlias = Annotated[Sgd | Adagrad | RowwiseAdagrad | Adam, Field(discriminator="type")]
