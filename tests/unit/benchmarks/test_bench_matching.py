"""Brute force is right where the answer can be told by hand, and the coordinator's own groups agree with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.support.best_matching import best_groups, best_shares
from coordinator.grouping import Candidate, partition


def cards(*speeds: float, vendor: str = "emulated") -> list[Candidate]:
    """Workers of these speeds; equal speeds are of one model."""
    return [Candidate(f"{vendor[0]}{number}", f"{speed:g}", vendor, speed) for number, speed in enumerate(speeds)]


def speeds_of(groups: Sequence[Sequence[str]], candidates: Sequence[Candidate]) -> list[list[float]]:
    speed = {one.worker: one.samples_per_s for one in candidates}
    return sorted(sorted(speed[worker] for worker in group) for group in groups)


def test_each_model_has_its_group() -> None:
    candidates = cards(4000, 1000, 3000, 2000, 1000, 4000, 2000, 3000)
    groups, cost = best_groups(candidates)
    assert speeds_of(groups, candidates) == [[1000, 1000], [2000, 2000], [3000, 3000], [4000, 4000]]
    assert cost == pytest.approx(0.15)


def test_a_lone_model_joins_others() -> None:
    groups, _ = best_groups(cards(4000, 500, 500, 500))
    assert [len(group) for group in groups] == [4]


def test_vendors_are_not_mixed() -> None:
    candidates = [*cards(1000, 1000, vendor="a"), *cards(1000, vendor="b")]
    groups, _ = best_groups(candidates)
    assert sorted(sorted(group) for group in groups) == [["a0", "a1"], ["b0"]]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([500.0, 1000.0, 1300.0, 4000.0]), min_size=2, max_size=6))
def test_the_coordinators_groups_cost_no_more(speeds: list[float]) -> None:
    candidates = cards(*speeds)
    assert partition(candidates).cost == pytest.approx(best_groups(candidates)[1], abs=1e-9)


@given(st.integers(0, 300), st.lists(st.floats(1.0, 100.0), min_size=1, max_size=6))
def test_no_other_shares_are_done_sooner(batch_size: int, speeds: list[float]) -> None:
    shares = best_shares(batch_size, speeds)
    assert sum(shares) == batch_size
    finished = max(share / speed for share, speed in zip(shares, speeds, strict=True))
    # The last sample was best placed where it is: nobody else would have finished it sooner.
    for share, speed in zip(shares, speeds, strict=True):
        assert (share + 1) / speed >= finished * (1 - 1e-12)


def test_equal_workers_have_equal_shares() -> None:
    assert Counter(best_shares(10, [5.0, 5.0, 5.0])) == {3: 2, 4: 1}
