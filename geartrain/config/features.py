"""The features of a job, in the order of the model's slots."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from geartrain.config.section import Expect, Many, PositiveInt, Section, Text, expected

MAX_TABLE_NAME_BYTES = 100
"""Table names become part of file names in checkpoints."""


def _check_table_name(name: str) -> str:
    usable = name.isprintable() and "/" not in name and "\\" not in name and not name.startswith(".")
    if not (usable and 1 <= len(name.encode()) <= MAX_TABLE_NAME_BYTES) or name == "default":
        raise ValueError(name)
    return name


TableName = Annotated[
    str,
    AfterValidator(_check_table_name),
    Expect(
        f"a table name (1 to {MAX_TABLE_NAME_BYTES} bytes, printable, without / and \\, no leading dot, not 'default')"
    ),
]


def _own_name(fields: dict[str, Any]) -> Any:
    return fields.get("name")


class CategoricalFeature(Section):
    """One value of any integer or string column: one key per sample. A missing value is a category of its own."""

    name: Text
    """Column of the data files."""
    kind: Literal["categorical"]
    table: TableName = Field(default_factory=_own_name, validate_default=True)
    """Table of the rows; the feature's name when left out. Features may share a table."""


class SequenceFeature(Section):
    """Many values per sample (a bag), pooled into one vector. A missing value is an empty bag: a zero vector."""

    name: Text
    """Column of the data files: strings split at `separator`, or lists (parquet)."""
    kind: Literal["sequence"]
    table: TableName = Field(default_factory=_own_name, validate_default=True)
    """Table of the rows; the feature's name when left out. Features may share a table."""
    separator: Text = "|"
    """What stands between the values of a text column."""
    max_length: PositiveInt | None = None
    """Only the last `max_length` values are kept; null keeps all."""
    pooling: Literal["mean", "sum"] = "mean"


def _table_of_bucketize(fields: dict[str, Any]) -> Any:
    return fields.get("name") if fields.get("transform") == "bucketize" else None


class NumericFeature(Section):
    """A number: two dense inputs (value, is missing), or, with `bucketize`, a one-key slot like a categorical one."""

    name: Text
    """Column of the data files."""
    kind: Literal["numeric"]
    transform: Literal["none", "log1p", "standard", "bucketize"] = "none"
    """log1p: log(1 + x), and -log(1 - x) for negatives. standard: (x - mean) / std of the training files.
    bucketize: the number of `boundaries` that are <= x becomes the id."""
    boundaries: Many[float] | None = None
    """Strictly increasing; only with bucketize."""
    table: TableName | None = Field(default_factory=_table_of_bucketize, validate_default=True)
    """Only with bucketize: table of the buckets' rows; the feature's name when left out."""

    @model_validator(mode="after")
    def _check_bucketize(self) -> NumericFeature:
        if self.transform != "bucketize":
            if self.boundaries is not None:
                raise expected(f"no boundaries with transform {self.transform}", "boundaries")
            if self.table is not None:
                raise expected(f"no table with transform {self.transform}", "table")
            return self
        rising = bool(self.boundaries) and all(low < high for low, high in pairwise(self.boundaries or ()))
        if not rising:
            raise expected("a list of strictly increasing numbers (transform: bucketize needs it)", "boundaries")
        return self


Feature: TypeAlias = Annotated[CategoricalFeature | NumericFeature | SequenceFeature, Field(discriminator="kind")]
"""A feature is a slot (it has rows) if and only if its `table` is not None."""
