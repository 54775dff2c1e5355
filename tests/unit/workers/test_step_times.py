"""Where the time of a step goes: nothing is lost between waiting and being busy, and waiting is never called work."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dense_workers.fetch import ReadyStep
from dense_workers.step_times import step_times

seconds = st.floats(0, 100)


def ready(fetch_s: float, fetched_s: float) -> ReadyStep:
    nothing = cast(Any, None)
    return ReadyStep(nothing, nothing, nothing, None, 0, fetch_s, fetched_s)


def test_a_step_in_its_parts() -> None:
    # The grant came at 12, the version at 13; rows were there at 15; 2 of the 6 s of computing were for others.
    times = step_times(10.0, 15.0, 21.0, ready(fetch_s=2.0, fetched_s=15.0), waited_s=2.0)
    assert times == pytest.approx((11_000, 5_000, 6_000))


def test_what_was_fetched_during_the_last_step_is_busy_time_but_not_of_this_cycle() -> None:
    times = step_times(10.0, 10.0, 12.0, ready(fetch_s=1.5, fetched_s=9.0), waited_s=0.0)
    assert times == pytest.approx((2_000, 0, 3_500))
    across = step_times(10.0, 11.0, 12.0, ready(fetch_s=3.0, fetched_s=10.5), waited_s=0.0)
    assert across == pytest.approx((2_000, 500, 4_000))


@given(seconds, seconds, seconds, seconds, st.floats(0, 1))
def test_a_step_fetched_in_its_own_cycle_is_waiting_and_work_and_nothing_else(
    grant_s: float, fetch_s: float, queued_s: float, computed_s: float, share: float
) -> None:
    cycle_start_s = 50.0
    fetched_s = cycle_start_s + grant_s + fetch_s
    start_s = fetched_s + queued_s
    waited_s = computed_s * share
    times = step_times(cycle_start_s, start_s, start_s + computed_s, ready(fetch_s, fetched_s), waited_s)
    assert times.step_ms == pytest.approx(times.wait_ms + times.busy_ms)
    assert times.busy_ms == pytest.approx((fetch_s + computed_s - waited_s) * 1000, abs=1e-6)
