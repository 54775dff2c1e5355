"""Learning-rate schedules: a factor for every rate, dense and sparse, as a function of the samples applied."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from geartrain.config.section import Expect, PositiveInt, Section, UnitNumber

Metric: TypeAlias = Literal["auc", "logloss", "gauc"]


class ConstantSchedule(Section):
    """The factor is 1."""

    type: Literal["constant"] = "constant"


class PlateauSchedule(Section):
    """The factor starts at 1 and is multiplied by `factor` after `patience` passes in a row without a better `metric`
    on the valid set; the count then starts again."""

    type: Literal["plateau"]
    factor: Annotated[float, Field(gt=0, lt=1), Expect("a number > 0 and < 1")] = 0.1
    patience: PositiveInt = 1
    metric: Metric = "auc"
    min_factor: UnitNumber = 0.0
    """The factor never goes below this."""


class CosineSchedule(Section):
    """From 1 down to `min_factor` along half a cosine over `total_samples`, and `min_factor` from there on."""

    type: Literal["cosine"]
    total_samples: PositiveInt | None = None
    """null: passes * rows of the training files."""
    min_factor: UnitNumber = 0.0


class WarmupSchedule(Section):
    """From `start_factor` up to 1 in a straight line over `warmup_samples`, and 1 from there on."""

    type: Literal["warmup"]
    warmup_samples: PositiveInt
    start_factor: UnitNumber = 0.0


LrSchedule: TypeAlias = Annotated[
    ConstantSchedule | PlateauSchedule | CosineSchedule | WarmupSchedule, Field(discriminator="type")
]
