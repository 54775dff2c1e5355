"""Learning-rate schedules as functions of samples applied and of metrics."""

from __future__ import annotations

import json

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.schedule import ScheduleState, after_pass, is_better, rate_factor
from geartrain.config.schedule import ConstantSchedule, CosineSchedule, PlateauSchedule, WarmupSchedule
from geartrain.errors import CheckpointError

START = ScheduleState()


def test_constant_is_one_whatever_happens() -> None:
    assert rate_factor(ConstantSchedule(), START, 10**9, 10) == 1.0
    assert after_pass(ConstantSchedule(), START, {"auc": 0.1}) == START


@pytest.mark.parametrize(("samples", "factor"), [(0, 0.1), (50, 0.55), (100, 1.0), (1000, 1.0)])
def test_warmup_rises_in_a_straight_line_over_samples(samples: int, factor: float) -> None:
    schedule = WarmupSchedule(type="warmup", warmup_samples=100, start_factor=0.1)
    assert rate_factor(schedule, START, samples, 5) == pytest.approx(factor)


@pytest.mark.parametrize(("samples", "factor"), [(0, 1.0), (50, 0.6), (100, 0.2), (500, 0.2)])
@pytest.mark.parametrize("total", [None, 100])
def test_cosine_falls_to_its_minimum_over_the_whole_run_or_its_own_total(
    samples: int, factor: float, total: int | None
) -> None:
    schedule = CosineSchedule(type="cosine", total_samples=total, min_factor=0.2)
    assert rate_factor(schedule, START, samples, 100 if total is None else 7) == pytest.approx(factor)


@steady
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_factor_depends_on_samples_alone_and_cosine_never_rises(one: int, other: int) -> None:
    schedule = CosineSchedule(type="cosine", total_samples=10**5)
    early, late = sorted((one, other))
    assert rate_factor(schedule, START, early, 1) >= rate_factor(schedule, START, late, 1)


def passes(schedule: PlateauSchedule, values: list[float | None]) -> list[float]:
    state, factors = START, []
    for value in values:
        state = after_pass(schedule, state, {schedule.metric: value})
        factors.append(rate_factor(schedule, state, 0, 1))
    return factors


def test_plateau_falls_after_patience_passes_without_gain_and_counts_anew() -> None:
    schedule = PlateauSchedule(type="plateau", factor=0.5, patience=2)
    assert passes(schedule, [0.7, 0.7, 0.6, 0.69, 0.5, 0.8, 0.8, 0.8]) == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]


def test_plateau_of_logloss_looks_for_lower_values() -> None:
    schedule = PlateauSchedule(type="plateau", factor=0.5, patience=1, metric="logloss")
    assert passes(schedule, [0.7, 0.6, 0.65]) == [1, 1, 0.5]


def test_plateau_never_goes_below_its_minimum() -> None:
    schedule = PlateauSchedule(type="plateau", factor=0.1, patience=1, min_factor=0.05)
    assert passes(schedule, [0.7, 0.7, 0.7, 0.7]) == [1, pytest.approx(0.1), 0.05, 0.05]


def test_a_pass_without_the_metric_changes_nothing_but_the_reason() -> None:
    schedule = PlateauSchedule(type="plateau", factor=0.5, patience=1)
    assert passes(schedule, [0.7, None, 0.6]) == [1, 1, 0.5]
    assert after_pass(schedule, START, {"logloss": 0.3}).reason == "auc has no value after this pass"


def test_every_change_of_a_plateau_has_its_reason() -> None:
    schedule = PlateauSchedule(type="plateau", factor=0.5, patience=1)
    state = after_pass(schedule, after_pass(schedule, START, {"auc": 0.75}), {"auc": 0.7})
    assert state.reason == "auc 0.7 is no better than 0.75: 1 of 1 passes; factor 1 -> 0.5"


def test_the_state_survives_a_checkpoint() -> None:
    state = after_pass(PlateauSchedule(type="plateau"), START, {"auc": 0.75})
    assert ScheduleState.from_dict(json.loads(json.dumps(state.to_dict()))) == state
    with pytest.raises(CheckpointError, match="schedule"):
        ScheduleState.from_dict({"factor": "half"})


def test_better_is_higher_but_lower_for_logloss() -> None:
    assert is_better("auc", 0.2, None)
    assert is_better("auc", 0.8, 0.7)
    assert not is_better("gauc", 0.7, 0.7)
    assert is_better("logloss", 0.3, 0.4)
    assert not is_better("logloss", 0.4, 0.3)
