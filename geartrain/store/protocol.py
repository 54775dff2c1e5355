"""What a coordinator needs of a store, small enough that SQLite and a network service can both give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class StateStore(Protocol):
    """Terms, one journal per job, and named values. All writes of a call are durable together or not at all.

    Every write names the writer's term: once a successor has raised it, writes of the old term raise
    `StaleMessageError`, so an old coordinator that wakes up can decide nothing.
    """

    def raise_term(self, held: int | None = None) -> int:
        """Set the term to one more than any before; the new term.

        Compare-and-set for a coordinator that has one: with `held`, nothing changes and StaleMessageError is raised
        unless that is the highest term.
        """

    def append(self, term: int, job: str, entries: Sequence[bytes]) -> None:
        """Add entries to the end of a job's journal, in order."""

    def entries(self, job: str) -> Iterator[bytes]:
        """The journal of a job from its beginning; empty for an unknown job."""

    def put(self, term: int, key: str, value: bytes) -> None:
        """Set a named value."""

    def delete(self, term: int, keys: Sequence[str]) -> None:
        """Remove named values; keys that are not there are no error."""

    def items(self, prefix: str) -> list[tuple[str, bytes]]:
        """Named values whose key starts with `prefix`, sorted by key."""

    def close(self) -> None:
        """Release the store; further calls are errors."""
