"""A sync group: the workers that compute a step in lock-step and sum their dense gradients.

The rendezvous store is hosted by the group's first member on a free port; a new membership is a new group, so a group
is formed once, used, and closed.

A collective waits for the slowest member, however long that takes. What ends it early is a member whose connection
breaks, or the coordinator, which finds members that died or froze by their leases and then gives up the term: nothing
in gloo can be interrupted, so the worker leaves the collective behind.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta

import numpy as np
import torch
from torch.distributed import (  # type: ignore[attr-defined]
    AllreduceOptions,
    PrefixStore,
    ProcessGroupGloo,
    ScatterOptions,
    TCPStore,
    Work,
)

from dense_workers.links import Links
from geartrain.errors import RoleDiedError
from geartrain.timeouts import DEFAULT
from geartrain.types import Floats

JOIN_PATIENCE = timedelta(seconds=DEFAULT.join_s)
STEP_PATIENCE = timedelta(seconds=DEFAULT.group_s)
LOOK_EVERY_S = 0.1
"""How often a worker that waits for others looks whether it still should."""


class GroupLeftError(Exception):
    """The coordinator gave up the term while this worker waited for others of its group: there is nothing to report."""


def host_store(host: str) -> tuple[TCPStore, str]:
    """Open a rendezvous store on a free port of `host`; the store and its address `host:port`."""
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=JOIN_PATIENCE)
    return store, f"{host}:{store.port}"


def connect_store(address: str) -> TCPStore:
    """Connect to the rendezvous store of a group at `host:port`."""
    host, port = address.rsplit(":", 1)
    return TCPStore(host, int(port), is_master=False, timeout=JOIN_PATIENCE)


class SyncGroup:
    """Collectives of one group, by gloo over CPU tensors. A group of one needs no peer and does nothing.

    Whatever waits for other members raises `GroupLeftError` when the worker is told that nobody waits for the group.
    """

    def __init__(
        self,
        group: int,
        members: Sequence[str],
        worker: str,
        store: Callable[[], TCPStore],
        links: Links,
        is_over: Callable[[], bool],
    ) -> None:
        """Forms the group. `store` opens its rendezvous store; it is not called in a group of one. `links` are the
        worker's own: how long bytes of a collective take in them, `dense_workers.links` says. `is_over`: whether the
        coordinator has given up the term of the group.

        Raises `RoleDiedError` when the others do not come.
        """
        self.group = group
        self.members = tuple(members)
        self.rank = self.members.index(worker)
        self.waited_s = 0.0
        """Seconds within collectives so far, as far as they are not due to the worker's own links: until all came."""
        self._links = links
        self._is_over = is_over
        self._sending: Work | None = None  # keeps what is sent
        self._gloo = self._form(store) if len(self.members) > 1 else None

    def broadcast(self, values: Floats) -> None:
        """Overwrite `values` float32[P] of every member with those of the first member, which must leave them as they
        are until the next `sum`.

        Nobody waits for a member that takes them late, as some would in gloo's own broadcast, which is a tree: the
        first member sends them to each of the others, and goes on.
        """
        if len(self.members) == 1:
            return
        gloo, tensors = self._peers(), [torch.from_numpy(values)]
        if self.rank == 0:
            self._links.upload((len(self.members) - 1) * values.nbytes)
            parts = [tensors * len(self.members)]
            self._sending = gloo.scatter(tensors, parts, ScatterOptions())  # type: ignore[attr-defined]
        else:
            self._wait("broadcast", gloo.scatter(tensors, [], ScatterOptions()))  # type: ignore[attr-defined]
            self._links.download(values.nbytes)

    def sum(self, values: Floats) -> None:
        """Replace `values` float32[P] in place by the sum over the members.

        After a `GroupLeftError` the array must not be used any more: a member that wakes up may still write to it.
        """
        num_members = len(self.members)
        if num_members > 1:
            gloo, tensors = self._peers(), [torch.from_numpy(values)]
            self._wait("all-reduce", gloo.allreduce(tensors, AllreduceOptions()))  # type: ignore[attr-defined]
            self._sending = None  # who is here has taken it
            self._links.exchange(2 * (num_members - 1) * values.nbytes // num_members)

    def slice_of(self, length: int) -> tuple[int, int]:
        """The part [start, stop) of a vector of `length` that this member pushes: 1/k of it, exact together."""
        bounds = np.linspace(0, length, len(self.members) + 1).astype(np.int64)
        return int(bounds[self.rank]), int(bounds[self.rank + 1])

    def close(self) -> None:
        """Leave the group. Also right after a failed collective."""
        if self._sending is not None:
            self._leave_behind(self._sending)
        self._gloo = None

    def _form(self, store: Callable[[], TCPStore]) -> ProcessGroupGloo:
        formed: Future[ProcessGroupGloo] = Future()

        def form() -> None:
            try:
                rendezvous = PrefixStore(f"group-{self.group}", store())
                formed.set_result(ProcessGroupGloo(rendezvous, self.rank, len(self.members), JOIN_PATIENCE))
            except Exception as error:
                formed.set_exception(error)

        threading.Thread(target=form, name="form-group", daemon=True).start()
        while not formed.done():
            self._check()
            with suppress(TimeoutError):
                formed.exception(LOOK_EVERY_S)
        try:
            gloo = formed.result()
        except RuntimeError as error:
            raise self._lost("while it was formed", error) from error
        gloo._set_default_timeout(STEP_PATIENCE)
        return gloo

    def _wait(self, what: str, work: Work) -> None:
        begun_s = time.perf_counter()
        try:
            while not work.is_completed():
                self._check(work)
                with suppress(RuntimeError):  # time is up, or what the last line raises
                    work.wait(timedelta(seconds=LOOK_EVERY_S))
            work.wait()
        except RuntimeError as error:
            raise self._lost(f"during {what}", error) from error
        self.waited_s += time.perf_counter() - begun_s

    def _check(self, work: Work | None = None) -> None:
        """Raise when nobody waits for the group any more; what is under way is left behind."""
        if not self._is_over():
            return
        if work is not None:
            self._leave_behind(work)
        raise self._left()

    def _peers(self) -> ProcessGroupGloo:
        """What connects the members. Raises once the group was left: alone, a member would compute something else."""
        if self._gloo is None:
            raise self._left()
        return self._gloo

    def _left(self) -> GroupLeftError:
        return GroupLeftError(f"left sync group {self.group}, which waited for a member: its job was given up")

    def _leave_behind(self, work: Work) -> None:
        threading.Thread(target=_outlast, args=(self._gloo, work), name="left-group", daemon=True).start()
        self._gloo = self._sending = None

    def _lost(self, when: str, error: RuntimeError) -> RoleDiedError:
        why = re.sub(r"^\[[^\]]*\] ", "", str(error).splitlines()[0])  # without the place in gloo's source
        message = f"sync group {self.group} lost a member {when}: {why}"
        return RoleDiedError(message, group=self.group, members=list(self.members))


def _outlast(gloo: ProcessGroupGloo, work: Work) -> None:
    """Keep what a collective uses until it ends, when the silent member wakes up, or dies, or gloo loses patience.

    A thread that waits does not keep the process from ending; giving gloo up in it would.
    """
    with suppress(RuntimeError):
        work.wait()
    del gloo


def use_loopback() -> None:
    """Let gloo talk over the loopback interface: all roles are on this host."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
