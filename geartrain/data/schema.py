"""What readers need to know of a config: which columns become slots, dense inputs and the label, and how text is read.

Slots are the categorical, sequence and bucketized features in feature order; numeric inputs are the other numeric
features in feature order. Everybody who speaks of slot s or table t means places in this schema.
Shape letters: S slots, F numeric features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from geartrain.config import JobConfig
from geartrain.config.features import CategoricalFeature, NumericFeature, SequenceFeature
from geartrain.data.chunks import Statistics
from geartrain.types import Indices

SlotKind: TypeAlias = Literal["categorical", "sequence", "bucketized"]

NO_LIMIT = 2**62
"""`Slot.max_length` of a sequence that keeps all of its values."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One sparse feature: the column `name`, read into `table` (place `table_index` of the schema's tables)."""

    name: str
    kind: SlotKind
    table: str
    table_index: int
    mean: bool = False
    separator: str = ""
    max_length: int = NO_LIMIT
    boundaries: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NumericInput:
    """One dense feature: the column `name` after `transform` (none, log1p or standard)."""

    name: str
    transform: str


@dataclass(frozen=True, slots=True)
class LabelRule:
    """The label column: 0 and 1 only, or, with `positive`, the strings that mean 1 (all others mean 0)."""

    column: str
    positive: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class TextRules:
    """How text is read. `columns` names the columns of files without a header line; None means they have one."""

    separator: str = ","
    columns: tuple[str, ...] | None = None
    strip_whitespace: bool = False
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataSchema:
    """The columns of a job. `label` is None when files without labels are read (prediction); labels are 0 then."""

    format: str
    slots: tuple[Slot, ...]
    numerics: tuple[NumericInput, ...]
    label: LabelRule | None
    text: TextRules
    group_slot: int | None = None
    standard: Statistics = field(default_factory=dict)

    @staticmethod
    def from_config(
        config: JobConfig, standard: Mapping[str, tuple[float, float]] | None = None, labeled: bool = True
    ) -> DataSchema:
        """The schema of a checked config. `standard` is that of the `DatasetIndex`; only decoding needs it."""
        tables: dict[str, int] = {}
        slots: list[Slot] = []
        numerics: list[NumericInput] = []
        for feature in config.features:
            if isinstance(feature, NumericFeature) and feature.transform != "bucketize":
                numerics.append(NumericInput(feature.name, feature.transform))
            else:
                slots.append(_slot(feature, tables))
        names = [slot.name for slot in slots]
        return DataSchema(
            format=config.data.format,
            slots=tuple(slots),
            numerics=tuple(numerics),
            label=LabelRule(config.label.column, config.label.positive) if labeled else None,
            text=TextRules(
                separator=config.data.separator or ",",
                columns=config.data.columns,
                strip_whitespace=config.data.strip_whitespace,
                missing=config.data.missing,
            ),
            group_slot=None if config.data.group_by is None else names.index(config.data.group_by),
            standard=dict(standard or {}),
        )

    @property
    def slot_names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.slots)

    @property
    def numeric_names(self) -> tuple[str, ...]:
        return tuple(numeric.name for numeric in self.numerics)

    @property
    def table_names(self) -> tuple[str, ...]:
        """Tables in the order in which slots first name them."""
        return tuple(dict.fromkeys(slot.table for slot in self.slots))

    @property
    def slot_tables(self) -> Indices:
        """int64[S]: the table of each slot, as a place in `table_names`."""
        return np.array([slot.table_index for slot in self.slots], dtype=np.int64)

    @property
    def mean_slots(self) -> NDArray[np.uint8]:
        """uint8[S]: 1 where a bag is averaged, 0 where it is summed."""
        return np.array([slot.mean for slot in self.slots], dtype=np.uint8)

    @property
    def sequence_slots(self) -> Indices:
        """The slots that are sequences, int64: their values are a sample's tokens."""
        return np.array([place for place, slot in enumerate(self.slots) if slot.kind == "sequence"], dtype=np.int64)

    @property
    def num_numeric_inputs(self) -> int:
        """2F: a value and an indicator of absence for each numeric feature."""
        return 2 * len(self.numerics)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns that are read, the label (if any) first, each once."""
        label = () if self.label is None else (self.label.column,)
        return tuple(dict.fromkeys((*label, *self.slot_names, *self.numeric_names)))


def _slot(feature: CategoricalFeature | NumericFeature | SequenceFeature, tables: dict[str, int]) -> Slot:
    table = feature.table or feature.name
    index = tables.setdefault(table, len(tables))
    if isinstance(feature, SequenceFeature):
        limit = NO_LIMIT if feature.max_length is None else feature.max_length
        mean = feature.pooling == "mean"
        return Slot(feature.name, "sequence", table, index, mean=mean, separator=feature.separator, max_length=limit)
    if isinstance(feature, NumericFeature):
        return Slot(feature.name, "bucketized", table, index, boundaries=tuple(feature.boundaries or ()))
    return Slot(feature.name, "categorical", table, index)
