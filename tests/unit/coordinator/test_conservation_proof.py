"""The proof of conservation: it holds for whole journals, and names the first fault of any other."""

from __future__ import annotations

import itertools

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.conservation import ConservationReport, prove_conservation
from coordinator.journal import (
    Arrived,
    Cut,
    CutBegun,
    Decided,
    Entry,
    JobStarted,
    PassEnded,
    PassOpened,
    RolledBack,
    Skipped,
)
from geartrain.errors import ConservationError


def whole_pass(pass_index: int, cuts: list[int], version: int, term: int = 1) -> list[Entry]:
    """A pass whose intervals between the cuts are each applied in a window of their own."""
    entries: list[Entry] = [PassOpened(term, pass_index, cuts[-1])]
    for step, (start, stop) in enumerate(itertools.pairwise(cuts)):
        entries += one_window(pass_index, 100 * pass_index + step, start, stop, version + step + 1, term)
    return [*entries, PassEnded(term, pass_index, {})]


def one_window(pass_index: int, step: int, start: int, stop: int, version: int, term: int = 1) -> list[Entry]:
    return [
        Arrived(term, 0, step, version - 1, pass_index, start, stop, ["w0"], {}),
        Decided(term, version, [(0, step)], [1.0], 1.0, 1.0, 1.0, 0.1, {}, "test"),
    ]


def test_a_whole_journal_is_proven() -> None:
    entries = [JobStarted(1, "job"), *whole_pass(0, [0, 4, 9, 10], 0), *whole_pass(1, [0, 10], 3)]
    assert prove_conservation(entries, 10, 2) == ConservationReport(20, 0, 4, 0, 2)


def test_skipped_samples_are_a_class_of_their_own() -> None:
    entries = [
        JobStarted(1, "job"),
        PassOpened(1, 0, 6),
        *one_window(0, 0, 0, 4, 1),
        Arrived(1, 0, 1, 1, 0, 4, 6, ["w0"], {}),
        Skipped(1, 0, 1, "NaN or Inf"),
    ]
    report = prove_conservation(entries, 6, 1)
    assert (report.samples_applied, report.samples_skipped, report.versions) == (4, 2, 1)


def test_a_resumed_job_answers_for_its_own_passes() -> None:
    entries = [JobStarted(1, "job", version=7, first_pass=2), *whole_pass(2, [0, 5], 7)]
    assert prove_conservation(entries, 5, 3) == ConservationReport(5, 0, 8, 2, 3)


def test_what_a_rollback_made_void_does_not_count() -> None:
    entries = [
        JobStarted(1, "job"),
        PassOpened(1, 0, 8),
        *one_window(0, 0, 0, 4, 1),
        CutBegun(1, 1),
        Cut(1, 1, "one"),
        *one_window(0, 1, 4, 8, 2),
        RolledBack(2, 1, "server s0 died"),
        *one_window(0, 2, 4, 6, 2, term=2),
        *one_window(0, 3, 6, 8, 3, term=2),
    ]
    assert prove_conservation(entries, 8, 1).samples_applied == 8


@steady
@given(st.sets(st.integers(1, 39), min_size=1, max_size=10), st.data())
def test_any_missing_interval_is_found_by_its_positions(inner: set[int], data: st.DataObject) -> None:
    cuts = [0, *sorted(inner), 40]
    lost = data.draw(st.integers(0, len(cuts) - 2))
    entries: list[Entry] = [JobStarted(1, "job"), PassOpened(1, 0, 40)]
    version = 0
    for step, (start, stop) in enumerate(itertools.pairwise(cuts)):
        if step != lost:
            version += 1
            entries += one_window(0, step, start, stop, version)
    with pytest.raises(ConservationError, match="in no window and not skipped") as hole:
        prove_conservation(entries, 40, 1)
    assert hole.value.facts == {"pass_index": 0, "start": cuts[lost], "stop": cuts[lost + 1]}


@steady
@given(st.integers(0, 39), st.integers(1, 40))
def test_any_position_applied_twice_is_found(start: int, length: int) -> None:
    stop = min(40, start + length)
    entries = [JobStarted(1, "job"), PassOpened(1, 0, 40), *one_window(0, 0, 0, 40, 1)]
    with pytest.raises(ConservationError, match="counted twice") as twice:
        prove_conservation([*entries, *one_window(0, 1, start, stop, 2)], 40, 1)
    assert twice.value.facts == {"pass_index": 0, "start": start, "stop": stop}


def test_a_position_both_applied_and_skipped_is_found() -> None:
    entries = [
        JobStarted(1, "job"),
        PassOpened(1, 0, 8),
        *one_window(0, 0, 0, 8, 1),
        Arrived(1, 0, 1, 1, 0, 7, 8, ["w0"], {}),
        Skipped(1, 0, 1, "NaN or Inf"),
    ]
    with pytest.raises(ConservationError, match="position 7 of pass 0 is counted twice"):
        prove_conservation(entries, 8, 1)


def test_a_pass_that_was_never_read_is_a_hole() -> None:
    entries = [JobStarted(1, "job"), *whole_pass(0, [0, 5], 0)]
    with pytest.raises(ConservationError, match="positions 0 to 5 of pass 1"):
        prove_conservation(entries, 5, 2)


@pytest.mark.parametrize(("num_rows", "num_passes"), [(4, 1), (5, 0)])
def test_more_than_there_is_to_read_is_an_error(num_rows: int, num_passes: int) -> None:
    entries = [JobStarted(1, "job"), *whole_pass(0, [0, 5], 0)]
    with pytest.raises(ConservationError, match="is too many"):
        prove_conservation(entries, num_rows, num_passes)
