"""What the entries of a journal add up to: for a coordinator that starts, and for the proof of conservation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator.events import StepId
from coordinator.intervals import IntervalSet
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
    SharesChanged,
    Skipped,
)
from geartrain.errors import ConflictError, ConservationError, StaleMessageError, VersionError
from geartrain.types import Interval


class PassRecord:
    """What became of the positions of one pass: applied, skipped, and `covered` by either."""

    def __init__(self, pass_index: int, num_rows: int) -> None:
        self.num_rows = num_rows
        self.applied = IntervalSet(pass_index)
        self.skipped = IntervalSet(pass_index)
        self.covered = IntervalSet(pass_index)


@dataclass(slots=True)
class JournalState:
    """What a coordinator must know to go on. `pass_index` is None between passes; `undecided` steps have arrived;
    `pass_versions` are the versions on which the passes began, from the first of the run."""

    term: int = 0
    job: str = ""
    first_pass: int = 0
    version: int = 0
    pass_index: int | None = None
    passes_done: int = 0
    passes: dict[int, PassRecord] = field(default_factory=dict)
    pass_versions: list[int] = field(default_factory=list)
    groups: dict[int, tuple[str, ...]] = field(default_factory=dict)
    highest_group: int = -1
    undecided: dict[StepId, Arrived] = field(default_factory=dict)
    last_decision: Decided | None = None
    cut_begun: int | None = None
    cuts: dict[int, str] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    ended: JobEnded | None = None

    @property
    def samples_applied(self) -> int:
        return sum(record.applied.num_samples for record in self.passes.values())

    @property
    def samples_skipped(self) -> int:
        return sum(record.skipped.num_samples for record in self.passes.values())


def effective(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that still count: a rollback voids what stands after the beginning of the last cut of its version.

    A cut that was not complete is none. Going back to the version with which the job started needs no cut. Raises
    VersionError when there is no such cut, StaleMessageError for a term that falls, or a rollback that does not raise
    it.
    """
    kept: list[Entry] = []
    term = 0
    for entry in entries:
        rolled_back = isinstance(entry, RolledBack)
        if entry.term < term or (rolled_back and entry.term == term):
            raise StaleMessageError(
                f"{type(entry).__name__} of term {entry.term} after an entry of term {term}",
                got=entry.term,
                current=term,
            )
        term = entry.term
        if isinstance(entry, RolledBack):
            kept = _until_cut(kept, entry.to_version)
        kept.append(entry)
    return kept


def _until_cut(entries: list[Entry], version: int) -> list[Entry]:
    """What the last complete cut of `version` holds, and that it is complete."""
    complete: list[Entry] = []
    for place in range(len(entries) - 1, -1, -1):
        match entry := entries[place]:
            case Cut(version=of) if of == version and not complete:
                complete = [entry]
            case CutBegun(version=of) if of == version and complete:
                return entries[: place + 1] + complete
            case JobStarted(version=of) if of == version:
                return entries[: place + 1]
            case _:
                pass
    cuts = [entry.version for entry in entries if isinstance(entry, Cut | JobStarted)]
    raise VersionError(f"rolled back to version {version}, but the cuts are {cuts}", got=version, current=cuts)


def replay(entries: Iterable[Entry]) -> JournalState:
    """What the entries of one job add up to. Does not depend on anything but them.

    Raises VersionError for a gap in the versions, StaleMessageError for a term that falls, ConservationError for a step
    decided without an arrival or positions counted twice, ConflictError for entries out of place.
    """
    everything = list(entries)
    state = JournalState()
    for entry in effective(everything):
        _fold(state, entry)
    # Ids of groups are never used twice: those of entries made void stay used.
    announced = [group for entry in everything if isinstance(entry, GroupsChanged) for group in entry.groups]
    state.highest_group = max(announced, default=-1)
    return state


def _fold(state: JournalState, entry: Entry) -> None:
    state.term = entry.term
    match entry:
        case JobStarted():
            _expect(state.job == "", f"job {entry.job} starts in the journal of job {state.job}")
            state.job, state.version = entry.job, entry.version
            state.first_pass = state.passes_done = entry.first_pass
            state.pass_versions = list(entry.pass_versions)
        case PassOpened():
            is_next = state.pass_index is None and entry.pass_index == state.passes_done
            _expect(
                is_next, f"pass {entry.pass_index} opens after {state.passes_done} passes, open: {state.pass_index}"
            )
            state.pass_index = entry.pass_index
            state.passes[entry.pass_index] = PassRecord(entry.pass_index, entry.num_rows)
            state.pass_versions.append(state.version)
        case GroupsChanged():
            keep = {StepId(*step) for step in entry.keep}
            state.groups = {group: tuple(members) for group, members in entry.groups.items()}
            state.undecided = {
                step: one for step, one in state.undecided.items() if step.group in entry.groups or step in keep
            }
        case SharesChanged():
            _expect(entry.batches.keys() == state.groups.keys(), f"shares of {sorted(entry.batches)} change")
        case Arrived():
            state.undecided[StepId(entry.group, entry.step)] = entry
        case Decided():
            _fold_decision(state, entry)
        case Skipped():
            interval = _take_arrival(state, StepId(entry.group, entry.step), "skipped")
            record = _open_record(state, interval)
            record.covered.add(interval)
            record.skipped.add(interval)
        case PassEnded():
            _expect(entry.pass_index == state.pass_index, f"pass {entry.pass_index} ends, open is {state.pass_index}")
            _expect(not state.undecided, f"pass {entry.pass_index} ends with undecided steps {sorted(state.undecided)}")
            state.pass_index = None
            state.passes_done += 1
            state.metrics.append(entry.metrics)
        case CutBegun():
            _expect(entry.version == state.version, f"a cut of version {entry.version} at version {state.version}")
            state.cut_begun = entry.version
        case Cut():
            _expect(
                entry.version == state.cut_begun, f"a cut of {entry.version} is complete, begun is {state.cut_begun}"
            )
            state.cut_begun = None
            state.cuts[entry.version] = entry.checkpoint
        case RolledBack():
            # Every worker begins anew, in groups that are announced after this.
            state.groups, state.undecided, state.cut_begun = {}, {}, None
        case JobEnded():
            state.ended = entry


def _fold_decision(state: JournalState, entry: Decided) -> None:
    if entry.version != state.version + 1:
        raise VersionError(
            f"the journal has version {entry.version} after {state.version}: version {state.version + 1} is missing"
            if entry.version > state.version
            else f"the journal has version {entry.version} a second time, after version {state.version}",
            got=entry.version,
            current=state.version,
        )
    for step in entry.steps:
        interval = _take_arrival(state, StepId(*step), f"in version {entry.version}")
        record = _open_record(state, interval)
        record.covered.add(interval)
        record.applied.add(interval)
    state.version = entry.version
    state.last_decision = entry


def _take_arrival(state: JournalState, step: StepId, how: str) -> Interval:
    arrived = state.undecided.pop(step, None)
    if arrived is None:
        raise ConservationError(
            f"step {step.step} of group {step.group} is {how} but did not arrive, or was decided before",
            group=step.group,
            step=step.step,
        )
    return Interval(arrived.pass_index, arrived.start, arrived.stop)


def _open_record(state: JournalState, interval: Interval) -> PassRecord:
    if interval.pass_index != state.pass_index:
        raise ConservationError(
            f"positions {interval.start} to {interval.stop} of pass {interval.pass_index}, open is {state.pass_index}",
            pass_index=interval.pass_index,
            start=interval.start,
            stop=interval.stop,
        )
    return state.passes[interval.pass_index]


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ConflictError(f"journal entry out of place: {otherwise}")
