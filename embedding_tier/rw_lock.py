"""A read-write lock: many pulls at a time, or one application of a window."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """Readers share it, a writer has it alone. A writer that waits keeps new readers out. Not reentrant."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._num_readers = 0
        self._num_waiting_writers = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._condition:
            while self._writing or self._num_waiting_writers:
                self._condition.wait()
            self._num_readers += 1
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def reading_if_free(self) -> Iterator[bool]:
        """Read without waiting: False, and nothing is held, while a writer has the lock or waits for it."""
        with self._condition:
            entered = not (self._writing or self._num_waiting_writers)
            self._num_readers += entered
        try:
            yield entered
        finally:
            if entered:
                self._leave()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._condition:
            self._num_waiting_writers += 1
            while self._writing or self._num_readers:
                self._condition.wait()
            self._num_waiting_writers -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._condition:
                self._writing = False
                self._condition.notify_all()

    def _leave(self) -> None:
        with self._condition:
            self._num_readers -= 1
            if self._num_readers == 0:
                self._condition.notify_all()
