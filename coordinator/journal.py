"""The journal: what was decided, in order, so that a coordinator that starts knows what its predecessor knew."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from geartrain.errors import WireError


class _Entry(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    term: int


class JobStarted(_Entry, frozen=True):
    """`version` and `first_pass`: where the job starts (those of the checkpoint it resumes, else 0).

    `pass_versions`: the versions on which the passes before it began.
    """

    job: str
    version: int = 0
    first_pass: int = 0
    pass_versions: list[int] = msgspec.field(default_factory=list)


class PassOpened(_Entry, frozen=True):
    """A pass over `num_rows` samples begins."""

    pass_index: int
    num_rows: int


class GroupsChanged(_Entry, frozen=True):
    """The live groups from now on (members in rank order) and the steps of groups that went which are still decided."""

    groups: dict[int, list[str]]
    keep: list[tuple[int, int]]
    reason: str


class SharesChanged(_Entry, frozen=True):
    """The live groups get other batches (samples by group id), cut among their members by other costs."""

    batches: dict[int, int]
    reason: str


class Arrived(_Entry, frozen=True):
    """The commit point of a step. `servers`: the incarnations that hold what was staged."""

    group: int
    step: int
    version: int
    pass_index: int
    start: int
    stop: int
    workers: list[str]
    servers: dict[str, int]


class Decided(_Entry, frozen=True):
    """Window `version`: contributions (group, step) in order, their weights, and the learning rates of the update."""

    version: int
    steps: list[tuple[int, int]]
    weights: list[float]
    divisor: float
    step_scale: float
    most_windows: float
    dense_lr: float
    sparse_lr: dict[str, float]
    reason: str


class Skipped(_Entry, frozen=True):
    """The arrived step contributes nothing to any window."""

    group: int
    step: int
    reason: str


class PassEnded(_Entry, frozen=True):
    """Every sample of the pass is decided; `metrics` are those of the valid split after it."""

    pass_index: int
    metrics: dict[str, Any]


class CutBegun(_Entry, frozen=True):
    """A checkpoint of `version` is being written: it holds what stands before this, whatever is done meanwhile."""

    version: int


class Cut(_Entry, frozen=True):
    """The checkpoint of `version`, begun before, is complete."""

    version: int
    checkpoint: str


class RolledBack(_Entry, frozen=True):
    """Everything after the last cut at `to_version` is void; `term` is the raised one."""

    to_version: int
    reason: str


class JobEnded(_Entry, frozen=True):
    """The last entry of a job: the state that it ended in, and why."""

    state: str
    reason: str


Entry: TypeAlias = (
    JobStarted
    | PassOpened
    | GroupsChanged
    | SharesChanged
    | Arrived
    | Decided
    | Skipped
    | PassEnded
    | CutBegun
    | Cut
    | RolledBack
    | JobEnded
)


def encode(entry: Entry) -> bytes:
    """The stored form of an entry."""
    return msgspec.msgpack.encode(entry)


_DECODER: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


def decode(data: bytes) -> Entry:
    """The entry that `encode` stored. Raises WireError."""
    try:
        return _DECODER.decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise WireError(f"a journal entry cannot be read: {error}", expected="an entry", got=data[:40].hex()) from error
