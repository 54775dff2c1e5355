"""Sets of positions: exact against plain sets, and deaf to nothing that is counted twice."""

from __future__ import annotations

import itertools

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.intervals import IntervalSet
from geartrain.errors import ConservationError
from geartrain.types import Interval

INTERVALS = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: Interval(2, pair[0], pair[0] + pair[1]))


def positions(intervals: IntervalSet) -> list[int]:
    return [position for one in intervals for position in range(one.start, one.stop)]


@steady
@given(st.lists(INTERVALS, max_size=12))
def test_adding_agrees_with_plain_sets_and_refuses_overlaps(added: list[Interval]) -> None:
    held, plain = IntervalSet(2), set[int]()
    for interval in added:
        new = set(range(interval.start, interval.stop))
        if new & plain:
            with pytest.raises(ConservationError) as refused:
                held.add(interval)
            assert refused.value.facts["start"] == min(new & plain)
            assert refused.value.facts["pass_index"] == 2
        else:
            held.add(interval)
            plain |= new
        assert positions(held) == sorted(plain)
        assert held.num_samples == len(plain)
        assert positions(held.missing(45)) == sorted(set(range(45)) - plain)
    neighbors = list(held)
    assert all(one.stop < other.start for one, other in itertools.pairwise(neighbors))


def test_taking_gives_the_lowest_positions_and_stops_at_a_gap() -> None:
    held = IntervalSet(0, [Interval(0, 8, 12), Interval(0, 0, 5)])
    assert [held.take(3), held.take(3), held.take(9)] == [Interval(0, 0, 3), Interval(0, 3, 5), Interval(0, 8, 12)]
    assert not held


def test_positions_of_another_pass_are_refused() -> None:
    with pytest.raises(ConservationError, match="of pass 1, others are of 0"):
        IntervalSet(0).add(Interval(1, 0, 5))
