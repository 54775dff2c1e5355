"""What holds for every cluster that can be simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation_support import FREE, Setting, card

from coordinator.simulated_devices import Traffic

SPEEDS = st.sampled_from([500, 1000, 2000, 3000, 6000])
OVERHEADS = {"round_trip_ms": 5.0, "step_ms": 3.0, "first_step_ms": 70.0, "apply_ms": 4.0}


@st.composite
def cards_of(draw: st.DrawFn, jitter: float, mortal: bool) -> list[Any]:
    """Up to six workers; the first one lives for ever."""
    count = draw(st.integers(1, 6))
    speeds = [draw(SPEEDS) for _ in range(count)]
    tenths = st.none() | st.integers(0, 200)
    deaths = [draw(tenths) if mortal and place else None for place in range(count)]
    return [
        card(f"M{speed}", speed, jitter=jitter, dies_at_s=None if death is None else death / 10)
        for speed, death in zip(speeds, deaths, strict=True)
    ]


@st.composite
def settings_of(draw: st.DrawFn, jitter: float = 0.2, mortal: bool = True) -> Setting:
    """Short jobs of any kind."""
    num_rows = draw(st.integers(1, 20_000))
    return Setting(
        cards=draw(cards_of(jitter, mortal)),
        batch_size=draw(st.integers(12, 1500)),
        num_samples=draw(st.integers(1, 3 * num_rows)),
        num_rows=num_rows,
        mode=draw(st.sampled_from(["sync", "async", "hybrid"])),
        window_ms=draw(st.sampled_from([None, 0.0, 30.0, 500.0])),
        depth=draw(st.integers(0, 1)),
        group_size=draw(st.sampled_from([None, 1, 2])),
        heterogeneous=draw(st.booleans()),
        overheads=draw(st.sampled_from([FREE, OVERHEADS])),
        traffic=draw(st.sampled_from([Traffic.proportional(0.0, 0.0, 0.0), Traffic.proportional(8.0, 40.0, 1e5)])),
    )


@settings(max_examples=40, deadline=None)
@given(settings_of(), st.integers(0, 3))
def test_every_sample_is_in_one_window_whatever_dies(setting: Setting, seed: int) -> None:
    # (The simulation itself raises ConservationError for a position that is in two windows or in none.)
    run = setting.run(seed)
    assert run.samples == setting.num_samples
    assert run.worker_samples.sum() == setting.num_samples
    assert sum(run.staleness.values()) >= run.version


@settings(max_examples=12, deadline=None)
@given(settings_of(), st.integers(0, 3))
def test_the_same_seed_gives_the_same_run(setting: Setting, seed: int) -> None:
    first, second = setting.run(seed), setting.run(seed)
    assert first.seconds == second.seconds
    assert first.staleness == second.staleness
    assert first.events == second.events
    np.testing.assert_array_equal(first.spent, second.spent)


@settings(max_examples=25, deadline=None)
@given(settings_of(jitter=0.0))
def test_no_cluster_is_faster_than_all_its_workers_alone(setting: Setting) -> None:
    # A deeper pipeline hides what a worker alone would wait for; then only cards are a bound.
    alone = replace(setting, overheads=FREE, traffic=Traffic.proportional(0.0, 0.0, 0.0))
    run = setting.run()
    bound = (alone if setting.depth else setting).capacity(run.seconds)
    # Below a whole step a share is cheaper than a sample of a whole batch, by less than one step in all.
    assert run.samples <= bound * (1 + 1e-9) + setting.batch_size * bool(setting.traffic.dense_bytes)


@settings(max_examples=25, deadline=None)
@given(settings_of(), st.integers(0, 3))
def test_all_time_of_living_workers_is_accounted_for(setting: Setting, seed: int) -> None:
    run = setting.run(seed)
    deaths = [np.inf if one.dies_at_s is None else one.dies_at_s for one in setting.workers]
    np.testing.assert_allclose(run.spent.sum(axis=0), np.minimum(run.seconds, deaths), rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), SPEEDS, st.integers(1, 50))
def test_equal_workers_add_up(count: int, speed: int, share: int) -> None:
    batch = count * share
    run = Setting([card("A", speed, count=count)], batch_size=batch, num_samples=20 * batch, num_rows=20 * batch).run()
    assert run.samples_per_s == pytest.approx(count * speed, rel=1e-9)
