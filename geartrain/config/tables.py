"""Settings of one table. What is left out comes from `tables.default`, then from `training` and the defaults here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from geartrain.config.optimizer import SparseOptimizer
from geartrain.config.row_life import (
    DEFAULT_ADMISSION,
    DEFAULT_EVICTION,
    DEFAULT_EXPIRY,
    Admission,
    Eviction,
    Expiry,
    MaxRows,
)
from geartrain.config.section import PositiveInt, PositiveNumber, Section, expected
from geartrain.config.validation import field_error


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
RowDtype: TypeAlias = Literal["fp32", "fp16", "bf16"]


class TableConfig(Section):
    """Settings of one table, or of all others under the name `default`. null means left out."""

    row_dtype: RowDtype | None = None
    """How values are stored; fp32 when left out everywhere. The optimizer computes in fp32 and keeps its state in fp32.
    Values are rounded to fp16 or bf16 up or down by chance, so that the mean is right; those of fp16 end at 65,504."""
    initializer: Initializer | None = None
    """uniform with range 0.01 when left out everywhere. They follow from seed, table and id alone."""
    admission: Admission | None = None
    """Which ids get a row; always when left out everywhere. An id without a row reads as its initial value."""
    expiry: Expiry | None = None
    """When a row leaves; never when left out everywhere. An id whose row left is as one that never had a row."""
    max_rows: MaxRows | None = None
    """The most rows that the table may have over all servers; no limit when left out everywhere.

    Each of the 1,024 shards has an equal part of the rows and makes room in itself: when it is full, a sixteenth of its
    part leaves at once, so a full table holds 94% to 100% of max_rows, and of the ids in windows nearly as many have a
    row as with one exact list (1% fewer for 20,000 rows, 2% for 5,000). Ids are spread over shards by a hash: with
    fewer than 100,000 rows the parts are so small that they fill up unevenly. With fewer than 1,024 only as many shards
    as there are rows have room, and most ids can never have a row."""
    eviction: Eviction | None = None
    """Whose rows leave a full shard first: lru (when left out everywhere) those whose last update is oldest, lfu those
    with the fewest shows, of the rows that the window does not update. Only with max_rows."""
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


def table_row_dtype(own: TableConfig, default: TableConfig) -> RowDtype:
    """How a table's values are stored: as it says, or as `tables.default` does, or fp32."""
    return own.row_dtype or default.row_dtype or "fp32"


def table_admission(own: TableConfig, default: TableConfig) -> Admission:
    """Which ids get a row: as the table says, or as `tables.default` does, or all."""
    return own.admission or default.admission or DEFAULT_ADMISSION


def table_expiry(own: TableConfig, default: TableConfig) -> Expiry:
    """When a row leaves: as the table says, or as `tables.default` does, or never."""
    return own.expiry or default.expiry or DEFAULT_EXPIRY


def table_limit(own: TableConfig, default: TableConfig) -> tuple[int | None, Eviction]:
    """The most rows, or None, and whose leave first: each as the table says, or as `tables.default` does."""
    return own.max_rows or default.max_rows, own.eviction or default.eviction or DEFAULT_EVICTION


def check_evictions(tables: Mapping[str, TableConfig]) -> None:
    """Raises ConfigError for an eviction that nothing would ever use, as there is no max_rows that it belongs to."""
    default = tables.get("default", TableConfig())
    for name, settings in tables.items():
        within = tables.values() if name == "default" else (settings, default)
        if settings.eviction is not None and all(one.max_rows is None for one in within):
            raise field_error(f"tables.{name}.eviction", "nothing: max_rows is not set", settings.eviction)
