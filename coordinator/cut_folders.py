"""How a folder becomes a checkpoint: written under a temporary name, renamed when it is whole, removed when it failed.

While a cut is under way its folder is locked, so that no other process takes it for one that a death or a failed save
has left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coordinator.checkpoints import TEMPORARY_PREFIX
from geartrain.checkpoint_layout import write_manifest
from geartrain.files import flush
from geartrain.job_states import ENDED_STATES


class CutFolders:
    """The temporary folders of this process. One cut is under way at a time: the next call finds the last one over."""

    def __init__(self) -> None:
        self._lock: int | None = None

    def prepare(self, directory: Path) -> None:
        """Make the empty temporary folder of a cut; what was left beside it is removed."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        self.clear(directory.parent)
        while self._lock is None:  # between two lines, another process may take the folder for an abandoned one
            directory.mkdir()
            self._lock = _locked(directory)

    def publish(self, temporary: Path, final: Path, manifest: dict[str, Any], expired: Iterable[Path]) -> None:
        """Make the cut complete and visible under its final name, then remove the expired ones."""
        write_manifest(temporary, manifest)
        for file in [*temporary.iterdir(), temporary]:
            flush(file)
        replaced = _put_aside(final)  # the same cut taken again after a return to an older one
        temporary.rename(final)
        flush(final.parent)
        self._unlock()
        for old in [replaced, *map(_put_aside, expired)]:
            shutil.rmtree(old, ignore_errors=True)

    def clear(self, root: Path) -> None:
        """Remove the temporary folders in `root`, unless another process is at them."""
        self._unlock()
        for left in root.glob(TEMPORARY_PREFIX + "*"):
            with contextlib.suppress(OSError):  # removed meanwhile, or another user's
                lock = os.open(left, os.O_RDONLY)
                try:
                    if _lock(lock, wait=False):
                        shutil.rmtree(left, ignore_errors=True)
                finally:
                    os.close(lock)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def clear_unfinished(jobs: Iterable[Mapping[str, Any]], output_dir: Path, job_folders: bool) -> None:
    """Remove the temporary folders of jobs, as they were stored, that had not ended when their coordinator did."""
    for job in jobs:
        if job["state"] not in ENDED_STATES:
            root = output_dir / job["id"] if job_folders else output_dir
            CutFolders().clear(root / job["config"].get("checkpoint", {}).get("directory", "checkpoints"))


def _locked(directory: Path) -> int | None:
    """A lock on a folder, which lasts until it is closed or this process ends; None if the folder is gone."""
    try:
        lock = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return None
    _lock(lock, wait=True)
    if directory.is_dir():
        return lock
    os.close(lock)
    return None


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock an open folder; False if another process has. Where nothing can be locked, nobody is taken to have."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _put_aside(directory: Path) -> Path:
    """Give a folder that is to be removed a temporary name: a death in the middle leaves no half of a checkpoint."""
    aside = directory.with_name(f"{TEMPORARY_PREFIX}removed-{directory.name}")
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        directory.rename(aside)
    return aside
