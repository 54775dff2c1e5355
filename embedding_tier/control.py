"""What an embedding server does on the coordinator's word. Messages in, answers out; no socket.

Only the writing of a snapshot goes on in a thread of its own, and has its answer told when it is done.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from embedding_tier.dense_blocks import DenseBlock
from embedding_tier.job_state import JobState
from embedding_tier.message_checks import check_bounds, check_decision, check_opening, pipeline_depth
from embedding_tier.optimizer import Optimizer
from embedding_tier.restore import Checkpoint
from embedding_tier.server import TierServer
from embedding_tier.snapshot import Snapshot
from geartrain.errors import CheckpointError, ConflictError, GeartrainError, VersionError
from geartrain.wire.messages import (
    Applied,
    Apply,
    CloseJob,
    DensePlaced,
    FromNode,
    JobClosed,
    JobOpened,
    NodeFailed,
    OpenJob,
    PlaceDense,
    SnapshotBegun,
    TakeSnapshot,
    ToNode,
)

_log = logging.getLogger(__name__)


class ServerControl:
    """Handles control messages of the server `node`. Used by one thread; `tell` may be called by another one."""

    def __init__(
        self,
        node: str,
        incarnation: int,
        data_plane: TierServer,
        tell: Callable[[FromNode], None],
        num_threads: int = 1,
    ) -> None:
        """`tell` sends the coordinator what is known later than the answer to its message.

        `num_threads` apply what a large window has for a table.
        """
        self._node = node
        self._incarnation = incarnation
        self._data_plane = data_plane
        self._opened: OpenJob | None = None
        self._term = 0  # the highest that a job was opened or closed in; it outlives the job
        self._tell = tell
        self._num_threads = num_threads
        self._snapshot: Snapshot | None = None

    def handle(self, message: ToNode) -> FromNode | None:
        """The answer to `message`, or None. Whatever goes wrong with the job is answered with `NodeFailed`.

        A message of a term that is over, or of one in which no job was opened here, is named in the log and has no
        effect.
        """
        if isinstance(message, OpenJob | CloseJob):
            self._term = max(self._term, message.term)
        term = getattr(message, "term", self._term)
        if term != self._term:
            _log.warning("%s of term %d refused, this server is at %d", type(message).__name__, term, self._term)
            return None
        try:
            return self._handle(message)
        except GeartrainError as error:
            return self._failed(message, error)
        except Exception as error:  # a fault of ours must not end the server without a word
            _log.exception("%s failed", type(message).__name__)
            return self._failed(message, GeartrainError(f"{type(message).__name__} failed: {error!r}"))

    def stop_snapshot(self) -> None:
        """Give up a snapshot that is being written. Raises `DeadlineError` when the disk hangs."""
        if self._snapshot is not None:
            self._snapshot.cancel()
            self._snapshot = None

    def _handle(self, message: ToNode) -> FromNode | None:
        if isinstance(message, OpenJob):
            return self._open(message)
        if isinstance(message, PlaceDense):
            return self._place_dense(message)
        if isinstance(message, Apply):
            check_decision(message)
            version = self._data_plane.decided(message)
            return Applied(self._node, self._incarnation, message.term, version)
        if isinstance(message, TakeSnapshot):
            return self._take_snapshot(message)
        if isinstance(message, CloseJob):
            return self._close(message)
        _log.warning("%s is no message for an embedding server", type(message).__name__)
        return None

    def _open(self, message: OpenJob) -> FromNode:
        answer = JobOpened(self._node, message.term, message.job, dense=[])
        opened = self._opened
        if opened is not None and (opened.term, opened.job) == (message.term, message.job):
            return answer  # sent again
        server = self._number(message)
        check_opening(message)
        self.stop_snapshot()
        depth = pipeline_depth(message)
        job = JobState(message.term, message.tables, message.version, depth, self._num_threads)
        if message.restore:
            checkpoint = Checkpoint(Path(message.restore))
            checkpoint.expect_tables([table.name for table in job.tables])
            for table in job.tables:
                checkpoint.load_table(table, message.route, server, message.restore_states)
        before = self._data_plane.job
        if before is not None and opened is not None and opened.job == message.job:
            job.go_on_counting(before)
        self._opened = message
        self._data_plane.open(job, message.route.route_epoch)
        return answer

    def _close(self, message: CloseJob) -> FromNode:
        if self._opened is None or self._opened.job != message.job:
            return JobClosed(self._node, message.job)
        self.stop_snapshot()
        stats = self._data_plane.stats(0)
        self._data_plane.close()
        self._opened = None
        return JobClosed(self._node, message.job, stats)

    def _place_dense(self, message: PlaceDense) -> FromNode:
        opened, job = self._job()
        answer = DensePlaced(self._node, message.term, message.job)
        server = self._number(opened)
        check_bounds(message, opened.route)
        start, stop = message.bounds[server], message.bounds[server + 1]
        if job.dense is not None and (job.dense.start, job.dense.stop) == (start, stop):
            return answer  # sent again
        block = DenseBlock(message.segments, start, stop, Optimizer.from_config(message.optimizer))
        if opened.restore and not message.put_by:
            Checkpoint(Path(opened.restore)).load_dense(block, message.bounds[-1], opened.restore_states)
        with job.lock.writing():
            job.dense = block
        return answer

    def _take_snapshot(self, message: TakeSnapshot) -> FromNode:
        opened, job = self._job()
        last = self._snapshot
        if last is not None and last.id == (message.term, message.snapshot):
            return last.answer()  # sent again
        if last is not None and last.is_running:
            raise ConflictError(
                f"snapshot {message.snapshot} was asked for while {last.id[1]} is being written",
                got=message.snapshot,
                current=last.id[1],
            )
        if job.version != message.version:
            raise VersionError(
                f"a snapshot of version {message.version} was asked for, this server has {job.version}",
                got=message.version,
                current=job.version,
            )
        if not os.path.isdir(message.directory):  # noqa: PTH112 -- Path.is_dir raises for names that no folder can have
            raise CheckpointError(f"{message.directory!r} is no folder to write to", file=message.directory)
        snapshot = Snapshot(job, opened.job, self._node, message)
        snapshot.begin(self._tell)
        self._snapshot = snapshot
        return SnapshotBegun(self._node, message.term, message.snapshot)

    def _job(self) -> tuple[OpenJob, JobState]:
        job = self._data_plane.job
        if self._opened is None or job is None:
            raise ConflictError("this server has no job open")
        return self._opened, job

    def _number(self, message: OpenJob) -> int:
        if self._node not in message.route.servers:
            raise ConflictError(
                f"server {self._node} is not in the route", got=self._node, expected=message.route.servers
            )
        return message.route.servers.index(self._node)

    def _failed(self, message: ToNode, error: GeartrainError) -> NodeFailed:
        job = getattr(message, "job", "") or (self._opened.job if self._opened is not None else "")
        return NodeFailed(self._node, getattr(message, "term", 0), job, error.to_dict())
