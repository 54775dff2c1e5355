"""Percentiles from the histogram are close to the exact ones and never below them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from embedding_tier.stats import LatencyHistogram, TableCounters


@given(st.lists(st.integers(1, 10**11), min_size=1), st.sampled_from([1.0, 50.0, 99.0, 100.0]))
def test_percentiles_are_within_a_quarter_octave(durations_ns: list[int], percent: float) -> None:
    histogram = LatencyHistogram()
    for duration_ns in durations_ns:
        histogram.add(duration_ns)
    exact_ms = sorted(durations_ns)[math.ceil(len(durations_ns) * percent / 100) - 1] / 1e6
    assert exact_ms * 0.999 <= histogram.percentile_ms(percent) <= exact_ms * 2**0.25 * 1.001


def test_nothing_counted_is_zero_and_extremes_are_counted() -> None:
    histogram = LatencyHistogram()
    assert histogram.percentile_ms(99) == 0.0
    for duration_ns in (0, 1, 2**60):
        histogram.add(duration_ns)
    assert histogram.percentile_ms(1) < 1e-5
    assert histogram.percentile_ms(100) > 1e5


def test_counters_add_up() -> None:
    counters = TableCounters()
    counters.pulled(5, 1_000_000)
    counters.pulled(7, 1_000_000)
    counters.pushed(3)
    counters.applied(2, 5, 0)
    counters.applied(1, 0, 4)
    counters.expired(6)
    assert (counters.pull_requests, counters.pull_rows) == (2, 12)
    assert (counters.push_requests, counters.push_rows) == (1, 3)
    assert (counters.num_admitted, counters.num_rejected) == (3, 5)
    assert (counters.num_expired, counters.num_evicted) == (6, 4)
    assert counters.pull_percentiles_ms()[0] >= 1.0
