"""The store of a single machine: one SQLite file in WAL mode, no service to run."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from geartrain.errors import GeartrainError, StaleMessageError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS term (one INTEGER PRIMARY KEY CHECK (one = 1), term INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal (number INTEGER PRIMARY KEY, job TEXT NOT NULL, entry BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS journal_job ON journal (job, number);
CREATE TABLE IF NOT EXISTS named (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO term VALUES (1, 0);
"""


class SqliteStore:
    """`StateStore` in a file. Safe to call from several threads and to open from several processes.

    Writes survive the death of the process at once (the journal is written before a decision is sent); after a loss of
    power the last moments may be missing, but never a part of a call (WAL with synchronous=NORMAL).

    Every call raises `GeartrainError` that names the file when it cannot be used: no database, or a full disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._errors_named():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.executescript(_SCHEMA)

    def raise_term(self, held: int | None = None) -> int:
        statement = "UPDATE term SET term = term + 1 WHERE ?1 IS NULL OR term = ?1 RETURNING term"
        with self._errors_named(), self._lock, closing(self._connection.cursor()) as cursor:
            row = cursor.execute(statement, (held,)).fetchone()
            if row is None:
                (current,) = cursor.execute("SELECT term FROM term").fetchone()
                raise _superseded(held, current)
            return int(row[0])

    def append(self, term: int, job: str, entries: Sequence[bytes]) -> None:
        self._write(term, "INSERT INTO journal (job, entry) VALUES (?, ?)", [(job, entry) for entry in entries])

    def put(self, term: int, key: str, value: bytes) -> None:
        self._write(term, "INSERT OR REPLACE INTO named VALUES (?, ?)", [(key, value)])

    def delete(self, term: int, keys: Sequence[str]) -> None:
        self._write(term, "DELETE FROM named WHERE key = ?", [(key,) for key in keys])

    def entries(self, job: str) -> Iterator[bytes]:
        last = 0
        while True:
            with self._errors_named(), self._lock:
                rows = self._connection.execute(
                    "SELECT number, entry FROM journal WHERE job = ? AND number > ? ORDER BY number LIMIT 1000",
                    (job, last),
                ).fetchall()
            if not rows:
                return
            yield from (entry for _, entry in rows)
            last = rows[-1][0]

    def items(self, prefix: str) -> list[tuple[str, bytes]]:
        with self._errors_named(), self._lock:
            return self._connection.execute(
                "SELECT key, value FROM named WHERE substr(key, 1, ?) = ? ORDER BY key", (len(prefix), prefix)
            ).fetchall()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _write(self, term: int, statement: str, rows: Sequence[tuple[str | bytes, ...]]) -> None:
        """Run `statement` for each row in one transaction that holds only while `term` is the highest one."""
        with self._errors_named(), self._lock, closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                (current,) = cursor.execute("SELECT term FROM term").fetchone()
                if current != term:
                    raise _superseded(term, current)
                cursor.executemany(statement, rows)
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended it already
                    cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise GeartrainError(f"{self._path}: the journal cannot be used: {error}", file=str(self._path)) from error


def _superseded(term: int | None, current: int) -> StaleMessageError:
    return StaleMessageError(
        f"term {term} may not write any more: a coordinator of term {current} has taken over", got=term, current=current
    )
