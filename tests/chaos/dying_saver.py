"""A process that trains and saves, over and over, and is killed at a chosen point of what it does to the disk."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from snapshot_servers import SEGMENTS, Server, cluster

from coordinator.checkpoints import FORMAT, BestSoFar, DataStatistics, Manifest
from coordinator.cut_folders import CutFolders
from coordinator.cuts import CutKeeper
from embedding_tier.table_writer import TableWriter

EVENTS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"})


def trained(version: int) -> list[Server]:
    """Two servers at a version, trained as the saver trains."""
    servers = cluster(2)
    for number in range(1, version + 1):
        for server in servers:
            server.train(number, share=0.3)
    return servers


def save_and_save(root: Path, num_saves: int, full_every: int, saved: Callable[[], object] = lambda: None) -> None:
    """A cut after every window, of which one is kept; `saved` is called after each."""
    servers = cluster(2)
    keeper = CutKeeper(root, keep=1, full_every=full_every)
    folders = CutFolders()
    for version in range(1, num_saves + 1):
        for server in servers:
            server.train(version, share=0.3)
        cut = keeper.begin("job", version - 1, version)
        folders.prepare(cut.temporary)
        files: dict[str, Any] = {}
        for server in servers:
            files |= server.take(cut.temporary, cut.base.version if cut.base is not None else None)
        manifest = Manifest(
            format=FORMAT,
            job="job",
            config={},
            version=version,
            term=1,
            passes_done=version,
            samples=0,
            train_seconds=0.0,
            schedule={},
            metrics={},
            best=BestSoFar(0, None, {}, None, 0),
            index=DataStatistics({}, {}),
            segments=SEGMENTS,
            dense_optimizer={"type": "adam"},
            servers=[server.name for server in servers],
            files=files,
            pass_versions=list(range(version)),
            base=cut.base,
        )
        done = keeper.publish(cut, manifest, is_best=True)
        folders.publish(done.temporary, done.final, msgspec.to_builtins(manifest), done.expired)
        saved()


@contextmanager
def each_step(root: Path, step: Callable[[], None]) -> Iterator[None]:
    """Calls `step` before everything that is done to the disk below `root`, in this process, for the rest of its life.

    That is every opening, writing, flushing, renaming and removing. What was written outlives the process anyway, so
    nothing waits for the disk.
    """
    below = os.fsencode(root)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and isinstance(arguments[0], str | os.PathLike) and below in os.fsencode(arguments[0]):
            step()

    write = TableWriter._write

    def flush(descriptor: int) -> None:
        step()

    def append(writer: TableWriter, data: bytes | memoryview) -> None:
        step()
        write(writer, data)

    os.fsync, TableWriter._write = flush, append  # type: ignore[method-assign]
    sys.addaudithook(audit)
    yield


def forked(work: Callable[[], object]) -> int:
    """Do `work` in a child of this process; how the child ended, as of `os.waitstatus_to_exitcode`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_steps(root: Path, num_saves: int, full_every: int) -> list[int]:
    """How many steps there were when each of the saves was done."""
    told = root / "steps"

    def work() -> None:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        counts: list[int] = []
        with each_step(root / "counted", step):
            save_and_save(root / "counted", num_saves, full_every, lambda: counts.append(count))
        told.write_bytes(msgspec.json.encode(counts))

    assert forked(work) == 0
    return msgspec.json.decode(told.read_bytes(), type=list[int])


def killed_at(root: Path, point: int, num_saves: int, full_every: int) -> int:
    """Save until step number `point` (from 0), which is not done any more."""

    def work() -> None:
        left = point

        def step() -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        with each_step(root, step):
            save_and_save(root, num_saves, full_every)

    return forked(work)
