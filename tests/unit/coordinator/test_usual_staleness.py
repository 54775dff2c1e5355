from __future__ import annotations

from statistics import median_low

from hypothesis import given
from hypothesis import strategies as st

from coordinator.usual_staleness import NUM_RECENT, UsualStaleness


@given(st.lists(st.integers(0, 12), max_size=3 * NUM_RECENT))
def test_it_is_the_lower_median_of_the_recent_ones(stalenesses: list[int]) -> None:
    usual = UsualStaleness()
    assert usual.median == 0
    for number, staleness in enumerate(stalenesses, start=1):
        usual.note(staleness)
        assert usual.median == median_low(stalenesses[:number][-NUM_RECENT:])
