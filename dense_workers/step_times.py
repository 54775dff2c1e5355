"""Where the time of a step goes: what the worker itself needs for it, and what it waits for others."""

from __future__ import annotations

from typing import NamedTuple

from dense_workers.fetch import ReadyStep


class StepTimes(NamedTuple):
    """`step_ms` from the end of the last step to the end of this one, of the first of a pass from its grant on;
    `wait_ms` the part of it that was spent waiting for other members, for a grant, or for a version; `busy_ms` what
    this step took of the worker's own time.

    Step = wait + busy, but where a step was fetched while the one before was computed: then busy counts both.
    """

    step_ms: float
    wait_ms: float
    busy_ms: float


def step_times(cycle_start_s: float, start_s: float, end_s: float, ready: ReadyStep, waited_s: float) -> StepTimes:
    """All arguments in seconds of `time.perf_counter`: since when its cycle runs, when the step was taken up and when
    it ended, and how long it waited for members of its group in between."""
    # Of the time before it was taken up, fetching was the worker's own; the rest it waited for a grant or a version.
    fetched_in_cycle_s = min(ready.fetch_s, max(0.0, ready.fetched_s - cycle_start_s))
    idle_s = max(0.0, start_s - cycle_start_s - fetched_in_cycle_s)
    return StepTimes(
        step_ms=(end_s - cycle_start_s) * 1000,
        wait_ms=(idle_s + waited_s) * 1000,
        busy_ms=(ready.fetch_s + end_s - start_s - waited_s) * 1000,
    )
