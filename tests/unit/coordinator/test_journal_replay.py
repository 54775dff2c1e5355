"""What the journal remembers, and what it refuses."""

from __future__ import annotations

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.events import StepId
from coordinator.journal import (
    Arrived,
    Cut,
    CutBegun,
    Decided,
    Entry,
    GroupsChanged,
    JobEnded,
    JobStarted,
    PassEnded,
    PassOpened,
    RolledBack,
    Skipped,
    decode,
    encode,
)
from coordinator.replay import replay
from geartrain.errors import ConflictError, ConservationError, StaleMessageError, VersionError, WireError
from geartrain.types import Interval


def arrived(group: int, step: int, start: int, stop: int, term: int = 1, pass_index: int = 0) -> Arrived:
    return Arrived(term, group, step, step, pass_index, start, stop, [f"w{group}"], {"s0": 4})


def decided(version: int, *steps: tuple[int, int], term: int = 1) -> Decided:
    return Decided(term, version, list(steps), [1.0] * len(steps), 8.0, 1.0, 1.0, 0.1, {"user": 0.2}, "1 of 1 arrived")


def window(version: int, group: int, step: int, start: int, stop: int, term: int = 1) -> list[Entry]:
    return [arrived(group, step, start, stop, term), decided(version, (group, step), term=term)]


def cut(version: int, name: str) -> list[Entry]:
    return [CutBegun(1, version), Cut(1, version, name)]


HEAD: list[Entry] = [
    JobStarted(1, "job"),
    GroupsChanged(1, {0: ["w0"], 1: ["w1"]}, [], "start"),
    PassOpened(1, 0, 16),
]

ENTRIES = st.one_of(
    st.builds(
        JobStarted, st.integers(0, 9), st.text(), st.integers(0, 9), st.integers(0, 9), st.lists(st.integers(0, 9))
    ),
    st.builds(PassOpened, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**40)),
    st.builds(
        GroupsChanged,
        st.integers(0, 9),
        st.dictionaries(st.integers(0, 99), st.lists(st.text())),
        st.just([(1, 2)]),
        st.text(),
    ),
    st.builds(arrived, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.builds(decided, st.integers(0, 9), st.tuples(st.integers(0, 9), st.integers(0, 9))),
    st.builds(Skipped, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.text()),
    st.builds(PassEnded, st.integers(0, 9), st.integers(0, 9), st.just({"valid": {"auc": 0.5, "reason": None}})),
    st.builds(CutBegun, st.integers(0, 9), st.integers(0, 9)),
    st.builds(Cut, st.integers(0, 9), st.integers(0, 9), st.text()),
    st.builds(RolledBack, st.integers(0, 9), st.integers(0, 9), st.text()),
    st.builds(JobEnded, st.integers(0, 9), st.text(), st.text()),
)


@steady
@given(ENTRIES)
def test_entries_survive_being_stored(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


@pytest.mark.parametrize("data", [b"", b"\x00", encode(HEAD[0])[:-3], b"\x81\xa4type\xa4Else"])
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="journal entry"):
        decode(data)


def test_replay_gives_what_a_coordinator_must_know() -> None:
    entries: list[Entry] = [
        *HEAD,
        *window(1, 0, 0, 0, 4),
        arrived(1, 0, 4, 8),
        Skipped(1, 1, 0, "NaN or Inf"),
        arrived(0, 1, 8, 12),
    ]
    state = replay(entries)
    assert (state.job, state.term, state.version, state.pass_index, state.passes_done) == ("job", 1, 1, 0, 0)
    assert (state.groups, state.highest_group) == ({0: ("w0",), 1: ("w1",)}, 1)
    assert list(state.undecided) == [StepId(0, 1)]
    assert list(state.passes[0].applied) == [Interval(0, 0, 4)]
    assert list(state.passes[0].skipped) == [Interval(0, 4, 8)]
    assert list(state.passes[0].covered) == [Interval(0, 0, 8)]
    assert (state.samples_applied, state.samples_skipped) == (4, 4)
    assert state.last_decision == decided(1, (0, 0))


def test_passes_metrics_cuts_and_the_end_are_remembered() -> None:
    entries: list[Entry] = [
        *HEAD,
        *window(1, 0, 0, 0, 16),
        PassEnded(1, 0, {"auc": 0.7}),
        *cut(1, "pass-1"),
        JobEnded(1, "succeeded", "all passes are done"),
    ]
    state = replay(entries)
    assert (state.passes_done, state.pass_index, state.metrics, state.cuts) == (1, None, [{"auc": 0.7}], {1: "pass-1"})
    assert state.ended == JobEnded(1, "succeeded", "all passes are done")


def test_a_gap_in_the_versions_is_an_error_that_names_it() -> None:
    with pytest.raises(VersionError, match="version 3 after 1: version 2 is missing") as gap:
        replay([*HEAD, *window(1, 0, 0, 0, 4), *window(3, 0, 1, 4, 8)])
    assert gap.value.facts == {"got": 3, "current": 1}


def test_a_version_decided_twice_is_an_error() -> None:
    with pytest.raises(VersionError, match="version 1 a second time"):
        replay([*HEAD, *window(1, 0, 0, 0, 4), *window(1, 0, 1, 4, 8)])


def test_a_lower_term_after_a_higher_one_is_refused() -> None:
    with pytest.raises(StaleMessageError, match="Decided of term 1 after an entry of term 2"):
        replay([*HEAD, arrived(0, 0, 0, 4, term=2), decided(1, (0, 0), term=1)])


def test_a_higher_term_goes_on_where_the_lower_one_was() -> None:
    state = replay([*HEAD, *window(1, 0, 0, 0, 4), *window(2, 0, 1, 4, 8, term=2)])
    assert (state.term, state.version) == (2, 2)


def test_a_rollback_voids_what_stands_after_the_cut() -> None:
    entries: list[Entry] = [
        *HEAD,
        *window(1, 0, 0, 0, 4),
        *cut(1, "one"),
        *window(2, 0, 1, 4, 8),
        arrived(1, 0, 8, 12),
        Skipped(1, 1, 0, "NaN or Inf"),
        arrived(0, 2, 12, 16),
        GroupsChanged(1, {5: ["w0"]}, [(0, 2)], "w1 died"),
        RolledBack(2, 1, "server s0 died"),
    ]
    state = replay(entries)
    assert (state.term, state.version, state.samples_applied, state.samples_skipped) == (2, 1, 4, 0)
    assert (state.groups, state.undecided) == ({}, {})
    assert state.highest_group == 5, "ids of a void past stay used"
    again = [GroupsChanged(2, {6: ["w0"]}, [], "all anew"), *window(2, 6, 0, 4, 16, term=2)]
    after = replay([*entries, *again])
    assert (after.version, after.samples_applied, list(after.passes[0].covered)) == (2, 16, [Interval(0, 0, 16)])


def test_a_rollback_across_a_pass_opens_it_again() -> None:
    entries: list[Entry] = [
        *HEAD,
        *window(1, 0, 0, 0, 8),
        *cut(1, "half"),
        *window(2, 0, 1, 8, 16),
        PassEnded(1, 0, {}),
        PassOpened(1, 1, 16),
        RolledBack(2, 1, "server s0 died"),
    ]
    state = replay(entries)
    assert (state.pass_index, state.passes_done, list(state.passes)) == (0, 0, [0])
    assert list(state.passes[0].covered.missing(16)) == [Interval(0, 8, 16)]


def test_a_rollback_to_the_start_needs_no_cut() -> None:
    state = replay([*HEAD, *window(1, 0, 0, 0, 4), RolledBack(2, 0, "server s0 died")])
    assert (state.version, state.pass_index, state.passes) == (0, None, {})


def test_a_second_rollback_goes_further_back() -> None:
    entries: list[Entry] = [
        *HEAD,
        *window(1, 0, 0, 0, 4),
        *cut(1, "one"),
        *window(2, 0, 1, 4, 8),
        *cut(2, "two"),
        RolledBack(2, 2, "s0 died"),
        RolledBack(3, 1, "the cut of version 2 is damaged"),
    ]
    state = replay(entries)
    assert (state.version, state.cuts) == (1, {1: "one"})


def test_a_cut_is_complete_while_later_windows_are_decided() -> None:
    """What was decided between its beginning and its end is not in it, and void after a return to it."""
    entries: list[Entry] = [
        *HEAD,
        *window(1, 0, 0, 0, 4),
        CutBegun(1, 1),
        *window(2, 0, 1, 4, 8),
        Cut(1, 1, "one"),
        *window(3, 0, 2, 8, 12),
    ]
    whole = replay(entries)
    assert (whole.version, whole.cuts, whole.samples_applied) == (3, {1: "one"}, 12)
    back = replay([*entries, RolledBack(2, 1, "server s0 died")])
    assert (back.version, back.cuts, back.samples_applied) == (1, {1: "one"}, 4)
    assert replay([*entries, RolledBack(2, 1, "s0 died"), RolledBack(3, 1, "s1 died")]).cuts == {1: "one"}


def test_a_cut_that_was_broken_off_is_none() -> None:
    entries: list[Entry] = [*HEAD, *window(1, 0, 0, 0, 4), CutBegun(1, 1), *window(2, 0, 1, 4, 8)]
    assert replay(entries).cuts == {}
    with pytest.raises(VersionError, match=r"rolled back to version 1, but the cuts are \[0\]"):
        replay([*entries, RolledBack(2, 1, "?")])
    again = replay([*entries, CutBegun(1, 2), Cut(1, 2, "two")])
    assert again.cuts == {2: "two"}
    with pytest.raises(ConflictError, match="a cut of 1 is complete, begun is 2"):
        replay([*entries, CutBegun(1, 2), Cut(1, 1, "one")])


def test_a_rollback_to_what_was_never_cut_is_an_error() -> None:
    entries = [*HEAD, *window(1, 0, 0, 0, 4), *cut(1, "one"), *window(2, 0, 1, 4, 8), RolledBack(2, 2, "?")]
    with pytest.raises(VersionError, match=r"rolled back to version 2, but the cuts are \[0, 1\]"):
        replay(entries)


def test_a_rollback_must_raise_the_term() -> None:
    with pytest.raises(StaleMessageError, match="RolledBack of term 1"):
        replay([*HEAD, RolledBack(1, 0, "?")])


def test_a_step_is_decided_only_after_it_arrived_and_once() -> None:
    with pytest.raises(ConservationError, match="step 7 of group 0 is in version 1 but did not arrive"):
        replay([*HEAD, decided(1, (0, 7))])
    with pytest.raises(ConservationError, match="step 0 of group 0 is skipped but"):
        replay([*HEAD, *window(1, 0, 0, 0, 4), Skipped(1, 0, 0, "NaN or Inf")])


def test_arrivals_of_groups_that_went_survive_only_when_kept() -> None:
    entries: list[Entry] = [*HEAD, arrived(0, 0, 0, 4), arrived(1, 0, 4, 8)]
    changed = GroupsChanged(1, {2: ["w0"]}, [(1, 0)], "w1 died")
    assert list(replay([*entries, changed]).undecided) == [StepId(1, 0)]
    with pytest.raises(ConservationError, match="step 0 of group 0"):
        replay([*entries, changed, decided(1, (0, 0))])


@pytest.mark.parametrize(
    "entry",
    [
        JobStarted(1, "other"),
        PassOpened(1, 1, 16),
        PassEnded(1, 3, {}),
        Cut(1, 0, "not begun"),
        CutBegun(1, 9),
    ],
)
def test_entries_out_of_place_are_refused(entry: Entry) -> None:
    with pytest.raises(ConflictError, match="out of place"):
        replay([*HEAD, entry])


def test_a_pass_does_not_end_with_undecided_steps() -> None:
    with pytest.raises(ConflictError, match="undecided"):
        replay([*HEAD, arrived(0, 0, 0, 4), PassEnded(1, 0, {})])
