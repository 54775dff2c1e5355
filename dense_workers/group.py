"""A sync group: the workers that compute a step in lock-step and sum their dense gradients.

The rendezvous store is hosted by the group's first member on a free port; a new membership is a new group, so a group
is formed once, used, and closed.
"""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from dense_workers.links import Links
from geartrain.errors import RoleDiedError
from geartrain.timeouts import DEFAULT
from geartrain.types import Floats

TIMEOUT_S = DEFAULT.group_s
"""A member that is silent for this long is lost: gloo notices a frozen peer in no other way."""


def host_store(host: str) -> tuple[TCPStore, str]:
    """Open a rendezvous store on a free port of `host`; the store and its address `host:port`."""
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_timeout())
    return store, f"{host}:{store.port}"


def _timeout() -> datetime.timedelta:
    return datetime.timedelta(seconds=TIMEOUT_S)


class SyncGroup:
    """Collectives of one group, by gloo over CPU tensors. A group of one needs no peer and does nothing."""

    def __init__(self, group: int, members: Sequence[str], worker: str, store: TCPStore | None, links: Links) -> None:
        """`store` is what `host_store` or `connect_store` gave; None for a group of one. `links` are the worker's own:
        how long bytes of a collective take in them, `dense_workers.links` says."""
        self.group = group
        self.members = tuple(members)
        self.rank = self.members.index(worker)
        self.waited_s = 0.0
        """Seconds within collectives so far, as far as they are not due to the worker's own links: until all came."""
        self._store = store
        self._links = links
        if len(self.members) > 1:
            assert store is not None
            dist.init_process_group(
                "gloo",
                store=PrefixStore(f"group-{group}", store),
                rank=self.rank,
                world_size=len(self.members),
                timeout=_timeout(),
            )

    def broadcast(self, values: Floats) -> None:
        """Overwrite `values` float32[P] of every member with those of the first member."""
        if len(self.members) > 1:
            if self.rank == 0:
                self._links.upload(values.nbytes)
            self._run("broadcast", dist.broadcast, torch.from_numpy(values), 0)
            if self.rank != 0:
                self._links.download(values.nbytes)

    def sum(self, values: Floats) -> None:
        """Replace `values` float32[P] in place by the sum over the members."""
        num_members = len(self.members)
        if num_members > 1:
            self._run("all-reduce", dist.all_reduce, torch.from_numpy(values), dist.ReduceOp.SUM)
            self._links.exchange(2 * (num_members - 1) * values.nbytes // num_members)

    def slice_of(self, length: int) -> tuple[int, int]:
        """The part [start, stop) of a vector of `length` that this member pushes: 1/k of it, exact together."""
        bounds = np.linspace(0, length, len(self.members) + 1).astype(np.int64)
        return int(bounds[self.rank]), int(bounds[self.rank + 1])

    def close(self) -> None:
        """Leave the group. Also right after a failed collective."""
        if len(self.members) > 1 and dist.is_initialized():
            dist.destroy_process_group()
        self._store = None

    def _run(self, what: str, collective: object, *arguments: object) -> None:
        begun_s = time.perf_counter()
        try:
            collective(*arguments)  # type: ignore[operator]
            self.waited_s += time.perf_counter() - begun_s
        except RuntimeError as error:
            why = re.sub(r"^\[[^\]]*\] ", "", str(error).splitlines()[0])  # without the place in gloo's source
            late = f"; a member may not be {TIMEOUT_S:g} s slower than the others" if "imed out" in why else ""
            raise RoleDiedError(
                f"sync group {self.group} lost a member during {what}: {why}{late}",
                group=self.group,
                members=list(self.members),
            ) from error


def connect_store(address: str) -> TCPStore:
    """Connect to the rendezvous store of a group at `host:port`."""
    host, port = address.rsplit(":", 1)
    return TCPStore(host, int(port), is_master=False, timeout=_timeout())


def use_loopback() -> None:
    """Let gloo talk over the loopback interface: all roles are on this host."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
