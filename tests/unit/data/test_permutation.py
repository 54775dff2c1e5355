from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.data.permutation import PassOrder, permutation

CHUNKS = st.lists(st.integers(0, 40), min_size=1, max_size=8)


def flat(order: PassOrder, cuts: list[int]) -> list[tuple[int, int]]:
    """(chunk, row) of every position, read interval by interval."""
    return [
        (chunk, int(row)) for start, stop in pairwise(cuts) for chunk, rows in order.locate(start, stop) for row in rows
    ]


@given(CHUNKS, st.integers(0, 2**63), st.integers(0, 5), st.booleans(), st.data())
def test_any_cut_of_a_pass_reads_every_row_once_and_in_the_same_order(chunk_rows, seed, pass_index, shuffle, data):
    order = PassOrder(chunk_rows, seed, pass_index, shuffle)
    total = sum(chunk_rows)
    inner = data.draw(st.lists(st.integers(0, total), max_size=6))
    whole = flat(order, [0, total])
    assert flat(order, sorted([0, *inner, total])) == whole
    assert sorted(whole) == [(chunk, row) for chunk, size in enumerate(chunk_rows) for row in range(size)]


def test_without_shuffle_rows_come_in_file_order():
    order = PassOrder([3, 0, 2], seed=7, pass_index=1, shuffle=False)
    assert flat(order, [0, 5]) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]


def test_seed_and_pass_decide_the_order_and_nothing_else_does():
    def whole(seed: int, pass_index: int) -> list[tuple[int, int]]:
        return flat(PassOrder([50] * 10, seed, pass_index, shuffle=True), [0, 500])

    assert whole(1, 0) == whole(1, 0)
    assert len({tuple(whole(seed, index)) for seed in (1, 2) for index in (0, 1)}) == 4


def test_chunks_are_permuted_and_stay_together():
    order = PassOrder([20] * 30, seed=3, pass_index=0, shuffle=True)
    chunks = [chunk for chunk, _ in order.locate(0, 600)]
    assert sorted(chunks) == list(range(30))
    assert chunks != list(range(30))


def test_two_chunks_of_one_size_are_ordered_differently():
    order = PassOrder([100, 100], seed=3, pass_index=0, shuffle=True)
    first, second = (rows.tolist() for _, rows in order.locate(0, 200))
    assert first != second


def test_a_permutation_is_uniform_enough():
    places = np.array([np.flatnonzero(permutation(8, seed) == 0)[0] for seed in range(4000)])
    assert np.bincount(places, minlength=8).min() > 400


def test_the_order_is_a_fixed_function_of_its_arguments():
    # A change here changes which rows every past run saw: it must be a decision, not an accident.
    assert permutation(10, 1, 2).tolist() == [7, 4, 9, 6, 3, 2, 1, 8, 5, 0]


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 6), (3, 2)])
def test_an_interval_outside_the_pass_is_refused(start, stop):
    with pytest.raises(ValueError, match="not inside a pass of 5 rows"):
        PassOrder([5], seed=1, pass_index=0, shuffle=True).locate(start, stop)


def test_more_chunks_than_are_kept_in_memory():
    order = PassOrder([4] * 20, seed=5, pass_index=0, shuffle=True)
    first = flat(order, [0, 80])
    assert flat(order, [0, 80]) == first
