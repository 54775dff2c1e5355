"""Settings of one table. What is left out comes from `tables.default`, then from `training` and the defaults here."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from geartrain.config.optimizer import SparseOptimizer
from geartrain.config.section import PositiveInt, PositiveNumber, Section, expected


class ZeroInitializer(Section):
    """All values of a new row are 0."""

    type: Literal["zero"]


class UniformInitializer(Section):
    """Values of a new row are uniform in [-range, range]."""

    type: Literal["uniform"]
    range: PositiveNumber = 0.01


class NormalInitializer(Section):
    """Values of a new row are normal with mean 0 and standard deviation `std`."""

    type: Literal["normal"]
    std: PositiveNumber = 0.01


Initializer: TypeAlias = Annotated[
    ZeroInitializer | UniformInitializer | NormalInitializer, Field(discriminator="type")
]


class Admission(Section):
    """Which keys get a row."""

    type: Literal["always"] = "always"


class Expiry(Section):
    """When a row is removed."""

    type: Literal["never"] = "never"


class TableConfig(Section):
    """Settings of one table, or of all others under the name `default`. null means left out."""

    row_dtype: Literal["fp32"] | None = None
    initializer: Initializer | None = None
    """uniform with range 0.01 when left out everywhere."""
    admission: Admission | None = None
    expiry: Expiry | None = None
    max_rows: None = None
    """null: no limit."""
    dim: PositiveInt | None = None
    """`model.embedding_dim` when left out."""
    optimizer: SparseOptimizer | None = None
    """`training.sparse_optimizer` when left out everywhere."""
    lr: PositiveNumber | None = None
    """Replaces only the learning rate of the optimizer that applies."""

    @model_validator(mode="after")
    def _check_one_lr(self) -> TableConfig:
        if self.optimizer is not None and self.lr is not None:
            raise expected("either lr or optimizer (which has an lr), not both", "lr")
        return self


DEFAULT_INITIALIZER = UniformInitializer(type="uniform", range=0.01)


def table_optimizer(own: TableConfig, default: TableConfig, job: SparseOptimizer) -> SparseOptimizer:
    """The optimizer of a table: the most specific optimizer, with the most specific learning rate."""
    chosen = job
    for settings in (default, own):
        if settings.optimizer is not None:
            chosen = settings.optimizer
        elif settings.lr is not None:
            chosen = chosen.model_copy(update={"lr": settings.lr})
    return chosen


def table_initializer(own: TableConfig, default: TableConfig) -> Initializer:
    """The initializer of a table: its own, or that of `tables.default`, or uniform in [-0.01, 0.01]."""
    return own.initializer or default.initializer or DEFAULT_INITIALIZER
