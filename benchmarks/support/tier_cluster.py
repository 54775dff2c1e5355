"""Embedding servers as processes of their own, and their coordinator: the benchmark, which says what is decided."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import zmq

from benchmarks.support.memory_use import resident_bytes
from benchmarks.support.samples import BIRTHS_PER_WINDOW, DIM, RULE, uniform_keys
from benchmarks.support.step_sums import StepSums
from coordinator.routing import initial_route
from embedding_tier.client import TierClient
from geartrain.errors import GeartrainError
from geartrain.launch.home import CLUSTER_TOKEN_VARIABLE
from geartrain.launch.role_process import RoleProcess, geartrain_command, start_role
from geartrain.types import Indices, Keys
from geartrain.wire.framing import MAX_CONTROL_BYTES, decode_from_node, encode
from geartrain.wire.messages import (
    Applied,
    Apply,
    Contribution,
    DensePlaced,
    FromNode,
    Heartbeat,
    JobOpened,
    NodeFailed,
    OpenJob,
    PlaceDense,
    Register,
    Route,
    ServerStats,
    Shutdown,
    TableSpec,
    ToNode,
    Welcome,
)
from kernels.hashing import shard_of

TERM = 1
TABLE = "ids"
GROUP = 0
_LOOK_MS = 20
_HEARTBEATS_EVERY_S = 0.2
_ANSWER_S = 120.0

Answer = TypeVar("Answer", bound=FromNode)


class TierCluster:
    """`num_servers` servers with one job of one table open, over `ipc` or `tcp`; a context manager.

    One thread uses it; beside that one, a thread of its own answers heartbeats while nothing is asked.
    """

    def __init__(
        self, num_servers: int = 1, transport: str = "ipc", restore: Path | None = None, version: int = 0
    ) -> None:
        """`restore`: the checkpoint that the job begins with, of this `version`."""
        self.names = [f"s{number}" for number in range(num_servers)]
        self.token = secrets.token_hex(16)
        self.version = version
        self.stats: dict[str, ServerStats] = {}
        """The latest counters of each server; it sends them twice a second."""
        self.processes: list[RoleProcess] = []
        self.resident_bytes: dict[str, int] = {}
        """Memory of each server before the job was opened."""
        self._transport = transport
        self._restore = restore
        self._early: list[tuple[str, FromNode]] = []
        self._identities: dict[str, bytes] = {}
        self._addresses: dict[str, str] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._stack = ExitStack()

    def __enter__(self) -> TierCluster:
        with ExitStack() as stack:
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gt-bench-")))
            self._control: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
            stack.callback(self._control.close, linger=0)
            self._control.setsockopt(zmq.LINGER, 0)
            self._control.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL_BYTES)
            control = f"ipc://{self.directory}/control"
            self._control.bind(control)
            stack.callback(self._stop)
            self.processes = [self._start(name, control) for name in self.names]
            self._gather(Register)
            self.route: Route = initial_route(self.names, [self._addresses[name] for name in self.names])
            self._open()
            beats = threading.Thread(target=self._answer_heartbeats, daemon=True)
            beats.start()
            stack.callback(beats.join)
            stack.callback(self._closing.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def client(self, worker: str = "w0") -> TierClient:
        """A new client of all servers, as a worker has."""
        client = TierClient(self.route, worker, 1, TERM, self.token, DIM)
        client.place_dense([0] * (len(self.names) + 1))
        return client

    def layout(self, keys: Keys) -> tuple[Keys, Indices]:
        """Keys by server, and how many go to each, as workers plan them."""
        owner = np.asarray(self.route.owners)[shard_of(keys)]
        counts = np.bincount(owner, minlength=len(self.names)).astype(np.int64)
        return keys[np.argsort(owner, kind="stable")], counts[:, None]

    def push(self, client: TierClient, keys: Keys, counts: Indices, sums: StepSums) -> None:
        """`stage` and `apply_staged`."""
        self.stage(client, keys, counts, sums)
        self.apply_staged(len(keys))

    def stage(self, client: TierClient, keys: Keys, counts: Indices, sums: StepSums) -> None:
        """Stage gradients for the next window; the client is that of `w0`."""
        client.stage(GROUP, self.version, keys, counts, sums)

    def apply_staged(self, num_samples: int) -> None:
        """Decide that what was staged is the next window, and wait until every server applied it."""
        contributions = [Contribution(GROUP, self.version, ["w0"], num_samples, 1.0)]
        self.version += 1
        self.ask(Apply(TERM, self.version, contributions, 1.0, 1.0, 1.0, 0.0, {TABLE: RULE.lr}, [GROUP]), Applied)

    def fill(self, num_rows: int) -> None:
        """Have the rows of `uniform_keys(0, num_rows)` born through pushes."""
        client = self.client()
        grads = np.random.default_rng(0).standard_normal((BIRTHS_PER_WINDOW, DIM)).astype(np.float32)
        for start in range(0, num_rows, BIRTHS_PER_WINDOW):
            keys, counts = self.layout(uniform_keys(start, min(start + BIRTHS_PER_WINDOW, num_rows)))
            self.push(client, keys, counts, StepSums(grads[: len(keys)]))
        client.close()

    def ask(self, message: ToNode, kind: type[Answer]) -> dict[str, Answer]:
        """Tell every server, and wait for its answer.

        Raises what a server failed with, `RoleDiedError` when it died, RuntimeError when it says nothing.
        """
        with self._lock:
            frame = encode(message)
            for name in self.names:
                self._control.send_multipart([self._identities[name], frame])
            return self._gather(kind)

    def wait(self, kind: type[Answer]) -> dict[str, Answer]:
        """What every server says later, on its own. Raises as `ask`."""
        with self._lock:
            return self._gather(kind)

    def fresh_stats(self) -> dict[str, ServerStats]:
        """Counters that were taken after this call began."""
        with self._lock:
            self.stats.clear()
            while len(self.stats) < len(self.names):
                self._receive()
            return dict(self.stats)

    def _start(self, name: str, control: str) -> RoleProcess:
        listen = f"ipc://{self.directory}/{name}" if self._transport == "ipc" else "127.0.0.1:0"
        command = geartrain_command("server", [f"--name={name}", f"--control={control}", f"--listen={listen}"])
        environment: Mapping[str, str] = {CLUSTER_TOKEN_VARIABLE: self.token}
        return start_role(name, "server", command, environment, self.directory / f"{name}.log")

    def _open(self) -> None:
        config: dict[str, Any] = {"sync": {"pipeline_depth": 1}}
        optimizer = {"type": "rowwise_adagrad", "lr": RULE.lr}
        table = TableSpec(TABLE, DIM, optimizer, {"type": "uniform", "range": 0.01}, 1)
        restore = str(self._restore or "")
        self.resident_bytes = {role.name: resident_bytes(role.process.pid) for role in self.processes}
        self.ask(OpenJob(TERM, "bench", config, {}, [table], self.route, self.version, restore), JobOpened)
        bounds = [0] * (len(self.names) + 1)
        self.ask(PlaceDense(TERM, "bench", [], bounds, {"type": "sgd", "lr": 0.1}, "w0"), DensePlaced)

    def _stop(self) -> None:
        with self._lock:
            for identity in self._identities.values():
                self._control.send_multipart([identity, encode(Shutdown("the benchmark is over"))])
        for role in self.processes:
            if role.name not in self._identities:
                role.process.kill()
            role.process.wait()

    def _answer_heartbeats(self) -> None:
        while not self._closing.wait(_HEARTBEATS_EVERY_S):
            with self._lock:
                while self._control.poll(0):
                    self._early.append(self._receive())

    def _gather(self, kind: type[Answer]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        others: list[tuple[str, FromNode]] = []
        waited_ms = 0
        while len(answers) < len(self.names):
            if not self._early and not self._control.poll(_LOOK_MS):
                waited_ms += _LOOK_MS
                self._check(waited_ms, kind)
                continue
            name, message = self._early.pop(0) if self._early else self._receive()
            if isinstance(message, kind):
                answers[name] = message
            elif isinstance(message, NodeFailed):
                raise GeartrainError.from_dict(message.error)
            elif not isinstance(message, Heartbeat | Register):
                others.append((name, message))
        self._early = others
        return answers

    def _receive(self) -> tuple[str, FromNode]:
        """The next message; heartbeats and registrations are answered here."""
        identity, *frames = self._control.recv_multipart()
        message = decode_from_node(frames)
        name = message.name if isinstance(message, Register) else message.node
        if isinstance(message, Register):
            self._identities[name], self._addresses[name] = identity, message.address
        if isinstance(message, Heartbeat) and message.stats is not None:
            self.stats[name] = message.stats
        if isinstance(message, Heartbeat | Register):
            self._control.send_multipart([identity, encode(Welcome(name, TERM))])
        return name, message

    def _check(self, waited_ms: float, kind: type[Any]) -> None:
        for role in self.processes:
            if role.exit_status is not None:
                raise role.death()
        if waited_ms > _ANSWER_S * 1000:
            raise RuntimeError(f"no {kind.__name__} within {_ANSWER_S:g} s")
