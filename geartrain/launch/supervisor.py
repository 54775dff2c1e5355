"""The process behind `geartrain up`: detached, it owns the roles of a standing cluster until `geartrain down`.

While it lives it holds a lock; the state file beside it says where the cluster is. A state file whose lock is free is
left over from a supervisor that was killed (its roles died with it). When a role dies the whole cluster ends, and the
supervisor leaves a note of that (`geartrain.last_end`) until the next one is up.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from geartrain.errors import ConflictError, DeadlineError, GeartrainError, RoleDiedError
from geartrain.files import written_whole
from geartrain.last_end import LastEnd, forget_last_end, read_last_end
from geartrain.launch.local import READY_DEADLINE_S, STOP_GRACE_S, LocalCluster
from geartrain.launch.role_process import last_line
from geartrain.launch.signals import stop_on_signals
from geartrain.timeouts import DEFAULT

CHECK_EVERY_S = 0.2
UP_DEADLINE_S = 2 * READY_DEADLINE_S + STOP_GRACE_S
DOWN_DEADLINE_S = STOP_GRACE_S + 10.0
END_DEADLINE_S = 2.0
"""How long a supervisor may take to note why its cluster does not answer any more."""
_LOCK_DEADLINE_S = 1.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class StandingCluster:
    """Where a standing cluster is: the supervisor's process id and the URL of the API."""

    pid: int
    url: str


class StandingPlace:
    """The files of this host's standing cluster in the user's Geartrain folder."""

    def __init__(self, home: Path) -> None:
        name = f"up-{socket.gethostname()}"  # a home folder may be shared between hosts
        self._lock = home / f"{name}.lock"
        self._state = home / f"{name}.json"
        self.log = home / f"{name}.log"
        self.role_logs = home / f"{name}-logs"
        self.state_dir = home / f"{name}-state"

    @contextmanager
    def own(self) -> Iterator[None]:
        """Hold the lock. Raises `ConflictError` if a supervisor does."""
        with self._lock.open("w") as lock:
            deadline_s = time.monotonic() + _LOCK_DEADLINE_S
            # Who only looks (`is_owned`) holds the lock for a moment, too.
            while not _try_lock(lock.fileno(), fcntl.LOCK_EX):
                if time.monotonic() > deadline_s:
                    raise ConflictError("a cluster is up already")
                time.sleep(_POLL_S)
            killed = self._killed()
            if killed is not None and read_last_end(self.state_dir) is None:
                killed.write(self.state_dir)
            self._state.unlink(missing_ok=True)
            try:
                yield
            finally:
                self._state.unlink(missing_ok=True)

    def write(self, cluster: StandingCluster) -> None:
        """Say where the cluster is, to its user only; only for the owner of the lock. The last end is forgotten."""
        with written_whole(self._state) as unfinished:
            unfinished.touch(mode=0o600)
            unfinished.write_text(json.dumps(asdict(cluster)))
        forget_last_end(self.state_dir)

    def is_owned(self) -> bool:
        """Whether a supervisor lives."""
        try:
            with self._lock.open() as lock:
                return not _try_lock(lock.fileno(), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def read(self) -> StandingCluster | None:
        """The cluster that is up; None if there is none, or it is still starting."""
        return self._read_state() if self.is_owned() else None

    def last_end(self, awaited: str = "") -> LastEnd | None:
        """How the cluster ended, if nobody asked it to; None for one that is up, is starting or was told to stop.

        `awaited`: the URL of one that does not answer; if it is still taken to be up, what it ends with is waited for.
        """
        deadline_s = time.monotonic() + END_DEADLINE_S
        while True:
            owned, cluster = self.is_owned(), self._read_state()
            if owned and cluster is None:
                return None
            end = read_last_end(self.state_dir) or (None if owned else self._killed())
            if end is not None or cluster is None or cluster.url != awaited or time.monotonic() > deadline_s:
                return end
            time.sleep(_POLL_S)

    def _killed(self) -> LastEnd | None:
        """The end of a cluster whose state file is left over, for who knows that its supervisor is gone."""
        left = self._read_state()
        return (
            None if left is None else LastEnd(left.url, f"its supervisor (process {left.pid}) was killed", "supervisor")
        )

    def _read_state(self) -> StandingCluster | None:
        """None also for a file that no supervisor wrote."""
        try:
            found = StandingCluster(**json.loads(self._state.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return found if isinstance(found.pid, int) and isinstance(found.url, str) else None


def bring_up(place: StandingPlace, command: Sequence[str]) -> StandingCluster:
    """Start `command`, which is to call `supervise`, detached from this terminal, and wait until its cluster is up.

    Raises `RoleDiedError` with its last words if it gives up.
    """
    with place.log.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        return _await_up(place, process)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def bring_down(place: StandingPlace) -> bool:
    """Stop the standing cluster and wait until nothing of it runs; False if there was none.

    A supervisor that does not stop in time is killed, and its roles with it.
    """
    deadline_s = time.monotonic() + DOWN_DEADLINE_S
    asked: StandingCluster | None = None
    while place.is_owned():
        if asked is None:
            asked = place.read()
            if asked is not None:
                os.kill(asked.pid, signal.SIGTERM)
        if time.monotonic() > deadline_s:
            if asked is None:
                raise DeadlineError("the cluster is still starting", role="supervisor", deadline_s=DOWN_DEADLINE_S)
            os.kill(asked.pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    if asked is not None:
        _await_exit(asked.pid)
    return asked is not None


def supervise(place: StandingPlace, cluster: LocalCluster, announce: Callable[[StandingCluster], None]) -> None:
    """Run a cluster until a signal asks to stop, and `announce` when all its nodes are there.

    Raises what ends it otherwise: `RoleDiedError`, `DeadlineError`, or `ConflictError` if another one is up.
    """
    with stop_on_signals(), place.own(), cluster:
        _await_nodes(cluster)
        standing = StandingCluster(os.getpid(), cluster.url)
        place.write(standing)
        announce(standing)
        try:
            while True:
                cluster.check()
                time.sleep(CHECK_EVERY_S)
        except GeartrainError as error:
            # While the others still run: who misses the API finds the reason.
            LastEnd(cluster.url, error.message, str(error.facts.get("role", ""))).write(place.state_dir)
            raise


def _await_nodes(cluster: LocalCluster) -> None:
    deadline_s = time.monotonic() + READY_DEADLINE_S
    with cluster.client(DEFAULT.silence_s) as client:
        while True:
            cluster.check()
            ready, reason = client.ready()
            if ready:
                return
            if time.monotonic() > deadline_s:
                message = f"the cluster was not ready after {READY_DEADLINE_S:.0f} s: {reason}"
                raise DeadlineError(message, role="coordinator", deadline_s=READY_DEADLINE_S)
            time.sleep(CHECK_EVERY_S)


def _await_up(place: StandingPlace, process: subprocess.Popen[bytes]) -> StandingCluster:
    deadline_s = time.monotonic() + UP_DEADLINE_S
    while time.monotonic() < deadline_s:
        cluster = place.read()
        if cluster is not None and cluster.pid == process.pid:
            return cluster
        if process.poll() is not None:
            message = last_line(place.log) or f"the supervisor exited with status {process.returncode}"
            raise RoleDiedError(message, role="supervisor", log=str(place.log))
        time.sleep(_POLL_S)
    raise DeadlineError("the cluster was not up in time", role="supervisor", deadline_s=UP_DEADLINE_S)


def _await_exit(pid: int) -> None:
    """Wait for a process that has let go of its lock already: only the end of its interpreter is left."""
    if not hasattr(os, "pidfd_open"):
        return
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            select.select([descriptor], [], [], STOP_GRACE_S)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
