"""Percentiles from the histograms are close to the exact ones and never below them; counts add up table by table."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embedding_tier.stats import LatencyHistograms, TableCounters
from geartrain.types import Indices


def integers(*values: int) -> Indices:
    return np.array(values, dtype=np.int64)


def histogram_of(durations_ns: list[int]) -> LatencyHistograms:
    """Two tables; the second one has these durations, the first one others at the same times."""
    histograms = LatencyHistograms(2)
    for duration_ns in durations_ns:
        histograms.add(integers(0, 1), integers(7, duration_ns))
    return histograms


@given(st.lists(st.integers(1, 10**11), min_size=1), st.sampled_from([1.0, 50.0, 99.0, 100.0]))
def test_percentiles_are_within_a_quarter_octave(durations_ns: list[int], percent: float) -> None:
    exact_ms = sorted(durations_ns)[math.ceil(len(durations_ns) * percent / 100) - 1] / 1e6
    assert exact_ms * 0.999 <= histogram_of(durations_ns).percentile_ms(1, percent) <= exact_ms * 2**0.25 * 1.001


def test_nothing_counted_is_zero_and_extremes_are_counted() -> None:
    assert histogram_of([]).percentile_ms(1, 99) == 0.0
    histograms = histogram_of([0, 1, 2**60])
    assert histograms.percentile_ms(1, 1) < 1e-5
    assert histograms.percentile_ms(1, 100) > 1e5


def counts_of(counters: TableCounters, table: int) -> list[int]:
    """Pulls, pulled rows, pushes, pushed rows; admitted, rejected, evicted, expired."""
    asked = [counters.pull_requests, counters.pull_rows, counters.push_requests, counters.push_rows]
    lives = [counters.num_admitted, counters.num_rejected, counters.num_evicted, counters.num_expired]
    return [int(counts[table]) for counts in (*asked, *lives)]


def test_counters_add_up() -> None:
    counters = TableCounters(2)
    counters.pulled(integers(5, 0), integers(2_000_000, 1))
    counters.pulled(integers(7, 1), integers(2_000_000, 1_000_000))
    counters.pushed(integers(0, 3))
    counters.applied(np.array([[2, 5, 0], [0, 0, 1]]))
    counters.applied(np.array([[1, 0, 4], [0, 0, 0]]))
    counters.expired(0, 6)
    assert counts_of(counters, 0) == [2, 12, 0, 0, 3, 5, 4, 6]
    assert counts_of(counters, 1) == [1, 1, 1, 3, 0, 0, 1, 0]
    assert 2.0 <= counters.pull_percentiles_ms(0)[0] < 2.5
    assert 1.0 <= counters.pull_percentiles_ms(1)[0] < 1.25, "a request without rows for a table says nothing of it"


def test_counters_go_on_for_tables_that_stay() -> None:
    before, after = TableCounters(2), TableCounters(2)
    before.pulled(integers(5, 6), integers(1_000_000, 4_000_000))
    before.applied(np.array([[1, 2, 3], [4, 5, 6]]))
    after.go_on(before, [0], [1])
    after.pushed(integers(1, 1))
    assert counts_of(after, 0) == [1, 6, 1, 1, 4, 5, 6, 0]
    assert counts_of(after, 1) == [0, 0, 1, 1, 0, 0, 0, 0]
    assert after.pull_percentiles_ms(0) == before.pull_percentiles_ms(1)
