"""What the coordinator's pure core tells its shell to do, and what the shell tells the core when it is done.

Commands of one list are carried out in order: a journal entry before a message is durable before that is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from geartrain.wire.messages import Scores, ToNode


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control message to a node."""

    node: str
    message: ToNode


@dataclass(frozen=True, slots=True)
class Journal:
    """Append encoded entries to the journal of a job."""

    job: str
    entries: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Store the record of a job (its state, reason, config, result)."""

    job: str
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SavePortrait:
    """Store the portrait of a worker under a key of its device and its work."""

    key: str
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ForgetPortraits:
    """Remove the portraits that are stored under these keys."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComputeMetrics:
    """Compute AUC, logloss and the rest over all scores of an evaluation; answered by `MetricsComputed`."""

    job: str
    evaluation: int
    split: str
    scores: tuple[Scores, ...]


@dataclass(frozen=True, slots=True)
class WritePredictions:
    """Write the scores of a prediction job to `path`, in the order of the input; answered by `FilesDone`."""

    job: str
    path: Path
    scores: tuple[Scores, ...]


@dataclass(frozen=True, slots=True)
class PrepareCut:
    """Make the temporary folder into which servers write their part of a checkpoint; answered by `CutFilesDone`."""

    job: str
    directory: Path


@dataclass(frozen=True, slots=True)
class PublishCut:
    """Write the manifest, make all durable, rename to the final name; then remove `expired`, in this order.

    Answered by `CutFilesDone`.
    """

    job: str
    temporary: Path
    final: Path
    manifest: dict[str, Any]
    expired: tuple[Path, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ClearCuts:
    """Remove what failed saves have left in a run's folder of checkpoints; not answered."""

    directory: Path


@dataclass(frozen=True, slots=True)
class RaiseTerm:
    """Raise the term in the store: the job goes back to a checkpoint; answered by `TermRaised`."""

    job: str


Command: TypeAlias = (
    Send
    | Journal
    | SaveJob
    | SavePortrait
    | ForgetPortraits
    | ComputeMetrics
    | WritePredictions
    | PrepareCut
    | PublishCut
    | ClearCuts
    | RaiseTerm
)


@dataclass(frozen=True, slots=True)
class MetricsComputed:
    """Answer to `ComputeMetrics`: the metrics of a split, and when they were ready."""

    job: str
    evaluation: int
    split: str
    metrics: dict[str, Any]
    unix_time: float


@dataclass(frozen=True, slots=True)
class FilesDone:
    """A `WritePredictions` of this job was carried out; `error` says why it was not.

    It also answers a `ComputeMetrics` that failed.
    """

    job: str
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CutFilesDone:
    """A `PrepareCut` or `PublishCut` of this job was carried out; `error` says why it was not."""

    job: str
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TermRaised:
    """Answer to `RaiseTerm`: the term that holds from now on."""

    job: str
    term: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing but time: deadlines may be due."""


ShellAnswer: TypeAlias = MetricsComputed | FilesDone | CutFilesDone | TermRaised
ShellEvent: TypeAlias = ShellAnswer | TimePassed


def join_journals(commands: Iterable[Command]) -> list[Command]:
    """The same commands, entries of one job that follow each other as one: one transaction instead of several."""
    joined: list[Command] = []
    for command in commands:
        last = joined[-1] if joined else None
        if isinstance(command, Journal) and isinstance(last, Journal) and last.job == command.job:
            joined[-1] = Journal(command.job, last.entries + command.entries)
        else:
            joined.append(command)
    return joined
