"""Percentiles from the histograms are close to the exact ones, never below them, and recent; counts add up by table."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embedding_tier.stats import PERIOD_S, LatencyHistograms, TableCounters
from geartrain.types import Indices


def integers(*values: int) -> Indices:
    return np.array(values, dtype=np.int64)


def histogram_of(durations_ns: list[int]) -> LatencyHistograms:
    """Two tables; the second one has these durations, the first one another after each of them."""
    histograms = LatencyHistograms(2)
    for duration_ns in durations_ns:
        histograms.add(integers(0, 1), duration_ns / 1e9, 0.0)
        histograms.add(integers(1, 0), 7e-9, 0.0)
    return histograms


@given(st.lists(st.integers(1, 10**11), min_size=1), st.sampled_from([1.0, 50.0, 99.0, 100.0]))
def test_percentiles_are_within_a_quarter_octave(durations_ns: list[int], percent: float) -> None:
    exact_ms = sorted(durations_ns)[math.ceil(len(durations_ns) * percent / 100) - 1] / 1e6
    assert exact_ms * 0.999 <= histogram_of(durations_ns).percentiles_ms(percent, 0.0)[1] <= exact_ms * 2**0.25 * 1.001


def test_nothing_counted_is_zero_and_extremes_are_counted() -> None:
    assert histogram_of([]).percentiles_ms(99, 0.0) == [0.0, 0.0]
    histograms = histogram_of([-5, 0, 1, 2**60])
    assert histograms.percentiles_ms(1, 0.0)[1] < 1e-5
    assert histograms.percentiles_ms(100, 0.0)[1] > 1e5


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(1e-6, 10)), min_size=1), st.floats(0, 150))
def test_percentiles_are_of_this_period_and_the_one_before(requests: list[tuple[float, float]], later_s: float) -> None:
    histograms = LatencyHistograms(1)
    now_s, ended = 1e6, []
    for after_s, duration_s in requests:
        now_s += after_s
        histograms.add(integers(1), duration_s, now_s)
        ended.append((now_s, duration_s))
    now_s += later_s
    recent = [duration_s for at_s, duration_s in ended if at_s // PERIOD_S >= now_s // PERIOD_S - 1]
    slowest_ms = max(recent, default=0.0) * 1000
    (told_ms,) = histograms.percentiles_ms(100, now_s)
    assert slowest_ms * 0.999 <= told_ms <= slowest_ms * 2**0.25 * 1.001


def test_a_request_that_is_counted_a_moment_after_the_turn_forgets_nothing() -> None:
    histograms = LatencyHistograms(1)
    histograms.add(integers(1), 0.5, 1.25 * PERIOD_S)
    histograms.add(integers(1), 0.001, 2.01 * PERIOD_S)
    histograms.add(integers(1), 0.001, 1.99 * PERIOD_S)
    assert histograms.percentiles_ms(100, 2.02 * PERIOD_S)[0] > 500


def test_a_stall_after_a_day_shows_and_is_forgotten() -> None:
    now_s = 0.0
    counters = TableCounters(1, lambda: now_s)
    for now_s in range(86_400):
        counters.pulled(integers(1), 0.0001)
    for _ in range(5):
        counters.pulled(integers(1), 0.45)
    median_ms, slow_ms = counters.pull_percentiles_ms()[0]
    assert median_ms < 0.2 and 450 <= slow_ms < 540
    now_s += 2 * PERIOD_S
    assert counters.pull_percentiles_ms() == [(0.0, 0.0)], "nobody asked lately"


def counts_of(counters: TableCounters, table: int) -> list[int]:
    """Pulls, pulled rows, pushes, pushed rows; admitted, rejected, evicted, expired."""
    asked = [counters.pull_requests, counters.pull_rows, counters.push_requests, counters.push_rows]
    lives = [counters.num_admitted, counters.num_rejected, counters.num_evicted, counters.num_expired]
    return [int(counts[table]) for counts in (*asked, *lives)]


def test_counters_add_up() -> None:
    counters = TableCounters(2)
    counters.pulled(integers(5, 0), 0.002)
    counters.pulled(integers(7, 0), 0.002)
    counters.pulled(integers(0, 1), 0.001)
    counters.pushed(integers(0, 3))
    counters.applied(np.array([[2, 5, 0], [0, 0, 1]]))
    counters.applied(np.array([[1, 0, 4], [0, 0, 0]]))
    counters.expired(0, 6)
    assert counts_of(counters, 0) == [2, 12, 0, 0, 3, 5, 4, 6]
    assert counts_of(counters, 1) == [1, 1, 1, 3, 0, 0, 1, 0]
    (first_ms, _), (second_ms, _) = counters.pull_percentiles_ms()
    assert 2.0 <= first_ms < 2.5
    assert 1.0 <= second_ms < 1.25, "a request without rows for a table says nothing of it"


def test_counters_go_on_for_tables_that_stay() -> None:
    before, after = TableCounters(2), TableCounters(2)
    before.pulled(integers(5, 0), 0.001)
    before.pulled(integers(0, 6), 0.004)
    before.applied(np.array([[1, 2, 3], [4, 5, 6]]))
    after.go_on(before, [0], [1])
    after.pushed(integers(1, 1))
    assert counts_of(after, 0) == [1, 6, 1, 1, 4, 5, 6, 0]
    assert counts_of(after, 1) == [0, 0, 1, 1, 0, 0, 0, 0]
    assert after.pull_percentiles_ms() == [before.pull_percentiles_ms()[1], (0.0, 0.0)]
    assert after.pull_percentiles_ms()[0][0] >= 4.0
