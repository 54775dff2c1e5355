"""The data plane of an embedding server: requests of workers, answered from the state of the job.

Each request is checked in this order: token, term, route epoch, the worker's incarnation, the job, and only then its
buffers. Nothing here writes to a table; that is done by decisions, through `decided`.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Callable, Sequence

from embedding_tier.job_state import JobState
from embedding_tier.parking import ParkingLot, VersionTimes
from geartrain.errors import AuthError, ConflictError, DeadlineError, GeartrainError, StaleMessageError, WireError
from geartrain.wire.framing import (
    MAX_FRAME_BYTES,
    UNREADABLE,
    Frame,
    check_echo,
    decode_request_header,
    encode,
    need_frames,
    pull_keys,
    put_values,
    staged_arrays,
)
from geartrain.wire.messages import (
    Apply,
    Dense,
    Done,
    Echo,
    Failed,
    Origin,
    PullDense,
    PullRows,
    PutDense,
    Rows,
    ServerStats,
    Stage,
)
from geartrain.wire.transport import Buffers, Request
from kernels.wire_codec import encode_rows, encoded_bytes

MAX_DEADLINE_S = 86_400.0
"""The longest that a request may want to wait: what is kept for it must be given up some day."""

_log = logging.getLogger(__name__)


class TierServer:
    """Answers requests (`RequestHandler`) for the job that is open. Any thread may call anything here."""

    def __init__(self, token: str, incarnation: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is the one that `handle` and the arrival of requests are told on."""
        self._token = token.encode()
        self._incarnation = incarnation
        self._job: JobState | None = None
        self._route_epoch = 0
        self._clock = clock
        self._parked: ParkingLot[Request] = ParkingLot()
        self._version_times = VersionTimes()
        self._incarnations: dict[str, int] = {}  # the highest of each worker within this job: the one that is alive
        self._lock = threading.Lock()  # of the four above, and of what "the version is there" means for parking

    @property
    def job(self) -> JobState | None:
        return self._job

    def open(self, job: JobState, route_epoch: int) -> None:
        """Serve `job` from now on; pulls that waited for another one fail."""
        self._swap(job, route_epoch)

    def close(self) -> None:
        """Serve no job; pulls that wait fail."""
        self._swap(None, 0)

    def decided(self, decision: Apply) -> int:
        """Apply a decision and let pulls that waited for it go on; the version then. Raises as `JobState.decide`.

        Before it returns, memory is made ready for the next window: nobody waits for that but the thread that calls.
        """
        job = self._open_job()
        version = job.decide(decision)
        with self._lock:
            self._version_times.reached(version, self._clock())
            released = self._parked.release(version)
        for request in released:
            request.requeue()
        job.prepare_growth()
        return version

    def stats(self, queue_length: int) -> ServerStats | None:
        """Counters of the open job; `queue_length` requests wait for a thread."""
        job = self._job
        if job is None:
            return None
        tables, staged_bytes = job.stats()
        return ServerStats(tables, staged_bytes, queue_length + len(self._parked), job.version)

    def handle(self, request: Request, now_s: float) -> None:
        """Answer `request`, or park it."""
        sequence = UNREADABLE
        try:
            message = decode_request_header(request.frames)
            sequence = message.origin.sequence
            job = self._admit(message.origin)
            if isinstance(message, PullRows | PullDense):
                waited_s = self._wait_over(message, job, request, now_s)
                if waited_s is None:
                    return
                answer = self._pulled(message, job, request, waited_s)
            else:
                answer = self._put(message, job, request.frames)
        except GeartrainError as error:
            answer = [encode(Failed(sequence, error.to_dict()))]
        except Exception as error:  # the asker must hear of it, and this thread must go on
            _log.exception("a request failed")
            answer = [encode(Failed(sequence, GeartrainError(repr(error)).to_dict()))]
        request.reply(answer)

    def expire(self, now_s: float) -> None:
        """Have pulls that waited past their deadline handled again: they are answered with an error."""
        if not len(self._parked):
            return
        with self._lock:
            expired = self._parked.expired(now_s)
        for request in expired:
            request.requeue()

    def _swap(self, job: JobState | None, route_epoch: int) -> None:
        with self._lock:
            self._job, self._route_epoch = job, route_epoch
            self._incarnations.clear()
            self._version_times.clear()
            waiting = self._parked.clear()
        for request in waiting:
            request.requeue()

    def _open_job(self) -> JobState:
        job = self._job
        if job is None:
            raise ConflictError("this server has no job open")
        return job

    def _admit(self, origin: Origin) -> JobState:
        if not hmac.compare_digest(origin.token.encode(), self._token):
            raise AuthError("the cluster token is not the one of this server", worker=origin.worker)
        job = self._open_job()
        if origin.term != job.term:
            raise _stale("term", origin.term, job.term)
        if origin.route_epoch != self._route_epoch:
            raise _stale("route epoch", origin.route_epoch, self._route_epoch)
        with self._lock:
            current = max(origin.incarnation, self._incarnations.get(origin.worker, origin.incarnation))
            self._incarnations[origin.worker] = current
        if origin.incarnation != current:
            raise _stale(f"incarnation of {origin.worker}", origin.incarnation, current)
        if not origin.deadline_s <= MAX_DEADLINE_S:
            raise WireError(
                f"a deadline of {origin.deadline_s:g} s", expected=f"at most {MAX_DEADLINE_S:g}", got=origin.deadline_s
            )
        return job

    def _wait_over(self, message: PullRows | PullDense, job: JobState, request: Request, now_s: float) -> float | None:
        """How long a pull has waited for its version; None where that is not there yet, and the pull is parked.

        Raises `DeadlineError` when the pull may not wait any longer.
        """
        origin = message.origin
        with self._lock:
            if job.version >= message.version:
                return self._version_times.waited_s(message.version, request.arrived_s)
            deadline_s = request.arrived_s + origin.deadline_s
            if now_s < deadline_s:
                place = (origin.worker, origin.incarnation, origin.sequence)
                self._parked.park(place, message.version, deadline_s, request)
                return None
        raise DeadlineError(
            f"version {message.version} did not come within {origin.deadline_s:g} s, this server has {job.version}",
            role="server",
            deadline_s=origin.deadline_s,
            wanted=message.version,
            current=job.version,
        )

    def _pulled(self, message: PullRows | PullDense, job: JobState, request: Request, waited_s: float) -> Buffers:
        """The answer to a pull that waited so long for its version; a pull of rows is counted.

        It took from its arrival, or from when its version was there, to here: in the queue, for the lock, copying and
        encoding. Counted before it is sent, so that whoever has an answer finds it in the counters.
        """
        sequence, parked_ms = message.origin.sequence, waited_s * 1000
        if isinstance(message, PullRows):
            keys = pull_keys(message, request.frames, len(job.tables))
            _need_sendable(len(keys) * max(4 * job.row_dim, encoded_bytes(message.codec, job.row_dim)))
            rows, version = job.pull_rows(keys, message.counts)
            header = encode(Rows(sequence, self._incarnation, version, parked_ms))
            encoded = encode_rows(rows, message.codec)
            job.pulled(message.counts, self._clock() - request.arrived_s - waited_s)
            return [header, encoded]
        need_frames(request.frames, 1)
        values, start, version = job.pull_dense()
        return [encode(Dense(sequence, self._incarnation, version, start, start + len(values), parked_ms)), values]

    def _put(self, message: PutDense | Stage | Echo, job: JobState, frames: Sequence[Frame]) -> Buffers:
        if isinstance(message, PutDense):
            job.put_dense(message.start, put_values(message, frames))
        elif isinstance(message, Echo):
            check_echo(message, frames)
        elif isinstance(message, Stage) and job.wants(message):
            job.stage(message, staged_arrays(message, frames, len(job.tables), job.row_dim))
        return [encode(Done(message.origin.sequence, self._incarnation))]


def _need_sendable(num_bytes: int) -> None:
    if num_bytes > MAX_FRAME_BYTES:
        raise WireError(
            f"rows of {num_bytes} bytes in one answer", expected=f"at most {MAX_FRAME_BYTES}", got=num_bytes
        )


def _stale(what: str, got: int, current: int) -> StaleMessageError:
    return StaleMessageError(f"{what} {got}, this server is at {current}", what=what, got=got, current=current)
