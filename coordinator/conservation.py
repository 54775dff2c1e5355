"""The proof that no sample was lost or applied twice, from the journal alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.journal import Entry
from coordinator.replay import replay
from geartrain.errors import ConservationError
from geartrain.types import Interval


@dataclass(frozen=True, slots=True)
class ConservationReport:
    """What the journal proves. Samples count once per pass; passes before `first_pass` belong to the job it resumed."""

    samples_applied: int
    samples_skipped: int
    versions: int
    first_pass: int
    num_passes: int


def prove_conservation(entries: Iterable[Entry], num_rows: int, num_passes: int) -> ConservationReport:
    """Every position of every pass from the first of the job to `num_passes` is in exactly one window, or skipped.

    What a rollback made void does not count. Raises ConservationError naming the first hole or overlap, and whatever
    `replay` raises for a journal that contradicts itself.
    """
    state = replay(entries)
    for pass_index, record in sorted(state.passes.items()):
        for interval in record.covered:
            if interval.stop > num_rows or pass_index >= num_passes:
                raise _violation("is too many", interval, f"there are {num_passes} passes of {num_rows} rows")
    for pass_index in range(state.first_pass, num_passes):
        whole = [Interval(pass_index, 0, num_rows)] if num_rows > 0 else []
        holes = state.passes[pass_index].covered.missing(num_rows) if pass_index in state.passes else whole
        for hole in holes:
            raise _violation("is in no window and not skipped", hole, f"of {num_rows} rows")
    return ConservationReport(
        samples_applied=state.samples_applied,
        samples_skipped=state.samples_skipped,
        versions=state.version,
        first_pass=state.first_pass,
        num_passes=num_passes,
    )


def _violation(what: str, interval: Interval, context: str) -> ConservationError:
    return ConservationError(
        f"positions {interval.start} to {interval.stop} of pass {interval.pass_index}: this {what} ({context})",
        pass_index=interval.pass_index,
        start=interval.start,
        stop=interval.stop,
    )
