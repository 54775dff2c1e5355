"""Waiting for the end of processes that are no children of the test: by the kernel's word, not by looking again."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable

DEADLINE_S = 30.0
"""Only keeps a broken test from hanging."""


class Watched:
    """Processes watched from now on; `all_gone` waits for the end of each."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._descriptors = [os.pidfd_open(pid) for pid in pids]

    def all_gone(self) -> bool:
        """False if one still runs at the deadline. Ends the watch."""
        end_s = time.monotonic() + DEADLINE_S
        gone = []
        for descriptor in self._descriptors:
            readable, _, _ = select.select([descriptor], [], [], max(0.0, end_s - time.monotonic()))
            gone.append(bool(readable))
            os.close(descriptor)
        return all(gone)
