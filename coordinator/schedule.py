"""Learning-rate schedules: one factor for every rate, dense and sparse, from samples applied and from metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from geartrain.config.schedule import CosineSchedule, LrSchedule, PlateauSchedule, WarmupSchedule
from geartrain.errors import CheckpointError

LOWER_IS_BETTER = frozenset({"logloss"})


class ScheduleState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a schedule remembers between passes; plain JSON, part of every checkpoint.

    `factor` is that of a plateau schedule, `best` its metric's best value, `reason` says why the last pass left it so.
    """

    factor: float = 1.0
    best: float | None = None
    passes_without_gain: int = 0
    reason: str = "no pass was evaluated"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint's manifest."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> ScheduleState:
        """What `to_dict` gave. Raises CheckpointError for anything else."""
        try:
            return msgspec.convert(fields, ScheduleState)
        except msgspec.ValidationError as error:
            raise CheckpointError(f"the schedule's state is damaged: {error}", field="schedule") from error


def resumed(state: ScheduleState, before: LrSchedule, schedule: LrSchedule) -> ScheduleState:
    """What `schedule` remembers in a run that is resumed: all, unless `before` watched another metric, or none.

    Values of two metrics cannot be compared; the factor stays.
    """
    before_metric = before.metric if isinstance(before, PlateauSchedule) else None
    metric = schedule.metric if isinstance(schedule, PlateauSchedule) else None
    return state if metric == before_metric else ScheduleState(state.factor)


def rate_factor(schedule: LrSchedule, state: ScheduleState, samples: int, total_samples: int) -> float:
    """The factor of a window before which `samples` were applied in the whole run (resumed parts included).

    `total_samples`: passes * rows of the training files, for a cosine that names no total of its own.
    """
    if isinstance(schedule, PlateauSchedule):
        return max(state.factor, schedule.min_factor)
    if isinstance(schedule, WarmupSchedule):
        return _between(schedule.start_factor, 1.0, samples / schedule.warmup_samples)
    if isinstance(schedule, CosineSchedule):
        done = min(1.0, samples / (schedule.total_samples or total_samples))
        return _between(schedule.min_factor, 1.0, 0.5 * (1.0 + math.cos(math.pi * done)))
    return 1.0


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * min(1.0, share)


def after_pass(schedule: LrSchedule, state: ScheduleState, metrics: Mapping[str, Any]) -> ScheduleState:
    """The state after a pass with these metrics of the valid set; only a plateau schedule looks at them.

    A metric that is absent or None (AUC of one class) can be compared with nothing: it changes nothing but the reason.
    """
    if not isinstance(schedule, PlateauSchedule):
        return state
    name, value = schedule.metric, metrics.get(schedule.metric)
    if value is None:
        return msgspec.structs.replace(state, reason=f"{name} has no value after this pass")
    if is_better(name, value, state.best):
        reason = f"{name} {value:.6g} is better than {'nothing' if state.best is None else format(state.best, '.6g')}"
        return ScheduleState(state.factor, value, 0, reason)
    without_gain = state.passes_without_gain + 1
    reason = f"{name} {value:.6g} is no better than {state.best:.6g}: {without_gain} of {schedule.patience} passes"
    if without_gain < schedule.patience:
        return ScheduleState(state.factor, state.best, without_gain, reason)
    factor = max(schedule.min_factor, state.factor * schedule.factor)
    return ScheduleState(factor, state.best, 0, f"{reason}; factor {state.factor:.6g} -> {factor:.6g}")


def is_better(metric: str, value: float, best: float | None) -> bool:
    """Whether `value` beats `best` (None: nothing yet). AUC and GAUC rise, logloss falls."""
    if best is None:
        return True
    return value < best if metric in LOWER_IS_BETTER else value > best
