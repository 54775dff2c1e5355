"""The private folder of a running cluster: sockets, state and logs; only its user can read it.

The owner holds a lock on it. A folder whose owner was killed is unlocked, and the next launch removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "geartrain-"
_LOCK = "lock"
_MAX_BASE_LENGTH = 60
"""A socket's path may have 107 bytes; the folder's own name and the socket's need up to 40 of them."""


@contextmanager
def run_directory() -> Iterator[Path]:
    """A new folder, mode 0700, with a path short enough for sockets in it; removed at the end."""
    base = _short_base()
    _remove_abandoned(base)
    # Locked before it gets the name under which abandoned folders are looked for: no other launch can take it for one.
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=base))
    lock = os.open(hidden / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = hidden.rename(base / hidden.name.removeprefix("."))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)


def _short_base() -> Path:
    preferred = tempfile.gettempdir()
    return Path(preferred if len(os.fsencode(preferred)) <= _MAX_BASE_LENGTH else "/tmp")


def _remove_abandoned(base: Path) -> None:
    for directory in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, still locked, or just removed: not ours to clear away
            lock = os.open(directory / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
