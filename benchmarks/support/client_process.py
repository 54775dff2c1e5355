"""Clients in processes of their own, as workers are: told what to do over a pipe, they answer with times."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType
from typing import NamedTuple

import numpy as np

from benchmarks.support.echo import EchoClient
from benchmarks.support.samples import DIM, filled_store, uniform_keys
from embedding_tier.client import TierClient
from geartrain.memory import keep_freed_memory
from geartrain.types import Indices, Keys
from geartrain.wire.messages import Route
from kernels.row_store import RowStore

NUM_BATCHES = 48
"""Batches of keys that a client goes through again and again."""


class Times(NamedTuple):
    """When a run began and ended, on the clock that all processes share, and how long each request took."""

    began_s: float
    ended_s: float
    request_s: list[float]


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What a client pulls: `keys_per_request` distinct keys out of `uniform_keys(0, num_rows)`, from one server."""

    route: Route
    worker: str
    token: str
    num_rows: int
    keys_per_request: int
    echo_address: str = ""
    version: int = 0


class ClientProcess:
    """One client; a context manager. `begin` and `finish` of several clients let them run side by side."""

    def __init__(self, plan: ClientPlan) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, plan), daemon=True)

    def __enter__(self) -> ClientProcess:
        self._process.start()
        self.run("pull", 2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._pipe.send(("stop", 0))
            self._process.join()
        else:
            self._process.kill()

    def run(self, what: str, num_requests: int) -> Times:
        """`begin` and `finish` in one."""
        self.begin(what, num_requests)
        return self.finish()

    def begin(self, what: str, num_requests: int) -> None:
        """Have `num_requests` made one after the other: pull, echo or gather. 0: until `interrupt`."""
        self._pipe.send((what, num_requests))

    def interrupt(self) -> None:
        """End a run without a number of requests after the one under way."""
        self._pipe.send(("enough", 0))

    def finish(self) -> Times:
        """The times of what was begun. Raises EOFError when the process died."""
        times: Times = self._pipe.recv()
        return times


def _serve(pipe: Connection, plan: ClientPlan) -> None:
    keep_freed_memory()
    client = _Client(plan)
    while True:
        what, num_requests = pipe.recv()
        if what == "stop":
            break
        if what == "enough":
            continue
        pipe.send(_timed(client.request(what), num_requests, pipe))
    client.close()


def _timed(request: Callable[[int], object], num_requests: int, pipe: Connection) -> Times:
    times: list[float] = []
    began_s = now_s = time.perf_counter()
    number = 0
    while number < num_requests or (num_requests == 0 and not pipe.poll()):
        request(number)
        ended_s = time.perf_counter()
        times.append(ended_s - now_s)
        now_s = ended_s
        number += 1
    return Times(began_s, now_s, times)


class _Client:
    def __init__(self, plan: ClientPlan) -> None:
        self._plan = plan
        seed = int.from_bytes(plan.worker.encode(), "little") % 2**32
        order = np.random.default_rng(seed).permutation(plan.num_rows)
        most = max(1, min(NUM_BATCHES, plan.num_rows // plan.keys_per_request))
        ids = np.array_split(order[: most * plan.keys_per_request], most)
        all_keys = uniform_keys(0, plan.num_rows)
        self._batches: list[Keys] = [all_keys[batch] for batch in ids]
        self._counts: Indices = np.array([[plan.keys_per_request]], dtype=np.int64)
        self._rows = np.empty((plan.keys_per_request, DIM), dtype=np.float32)
        self._tier = TierClient(plan.route, plan.worker, 1, 1, plan.token, DIM)
        self._echo = EchoClient(plan.echo_address) if plan.echo_address else None
        self._store: RowStore | None = None

    def request(self, what: str) -> Callable[[int], object]:
        if what == "pull":
            return self._pull
        if what == "echo" and self._echo is not None:
            return partial(self._echoed, self._echo)
        if what == "gather":
            self._store = self._store or filled_store(self._plan.num_rows, "rowwise_adagrad")
            return partial(self._gather, self._store)
        raise ValueError(what)

    def close(self) -> None:
        self._tier.close()
        if self._echo is not None:
            self._echo.close()

    def _keys(self, number: int) -> Keys:
        return self._batches[number % len(self._batches)]

    def _pull(self, number: int) -> None:
        self._tier.pull(self._keys(number), self._counts, self._plan.version, self._rows)

    def _echoed(self, echo: EchoClient, number: int) -> None:
        echo.ask([self._keys(number)], self._rows.nbytes)

    def _gather(self, store: RowStore, number: int) -> None:
        store.pull(self._keys(number), self._rows)
