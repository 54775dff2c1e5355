"""Real servers and workers, each a process, to whom the test says what a coordinator would."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zmq
from cluster_support import DEADLINE_S, Commands, ended

from coordinator.routing import initial_route
from geartrain.config import JobConfig, parse_config
from geartrain.data.index import build_index
from geartrain.wire.framing import decode_from_node, encode
from geartrain.wire.messages import (
    CloseJob,
    DensePlaced,
    FromNode,
    Heartbeat,
    JobClosed,
    JobOpened,
    OpenJob,
    PlaceDense,
    Register,
    Route,
    ServerStats,
    Shutdown,
    ToNode,
    Welcome,
)

TERM, JOB = 1, "job-1"
TOKEN = "cluster-token"


class ScriptedCluster:
    """Servers s0, s1, ... and a worker w0, w1, ... for each device. A job is opened, and its dense vector placed."""

    def __init__(self, commands: Commands, num_servers: int, devices: Sequence[str]) -> None:
        self._resources = contextlib.ExitStack()
        folder = Path(self._resources.enter_context(TemporaryDirectory(prefix="gt-")))
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._resources.callback(self._socket.close)
        control = f"ipc://{folder}/control"
        self._socket.bind(control)
        self._identities: dict[str, bytes] = {}
        self.servers = [f"s{number}" for number in range(num_servers)]
        self.workers = [f"w{number}" for number in range(len(devices))]
        commands.extra["GEARTRAIN_CLUSTER_TOKEN"] = TOKEN
        self._processes: list[subprocess.Popen[str]] = []
        for name in self.servers:
            listen = f"--listen=ipc://{folder}/{name}"
            self._processes.append(commands.start("server", f"--name={name}", f"--control={control}", listen))
        for name, device in zip(self.workers, devices, strict=True):
            chosen = f"--device={device}"
            self._processes.append(commands.start("worker", f"--name={name}", f"--control={control}", chosen))
        registered = self.hear(Register, [*self.servers, *self.workers])
        self.route: Route = initial_route(self.servers, [registered[name].address for name in self.servers])

    def open(self, folder: Path, fields: Mapping[str, Any]) -> JobConfig:
        """Open a job on all nodes; its config."""
        config = parse_config(fields, folder, [folder])
        opening = OpenJob(
            term=TERM,
            job=JOB,
            config=config.to_dict(),
            index=build_index(config).to_dict(),
            tables=config.table_specs(),
            route=self.route,
            version=0,
        )
        opened = self.ask(JobOpened, [*self.servers, *self.workers], opening)
        segments = opened["w0"].dense
        size = segments[-1].stop
        self.bounds = [size * part // len(self.servers) for part in range(len(self.servers) + 1)]
        placing = PlaceDense(TERM, JOB, segments, self.bounds, {"type": "sgd", "lr": 0.1}, "w0")
        for role in (self.servers, self.workers):
            self.ask(DensePlaced, role, placing)
        return config

    def ask(self, kind: type[Any], nodes: Sequence[str], message: ToNode) -> dict[str, Any]:
        """Say the same to several nodes, and hear an answer of `kind` from each."""
        for name in nodes:
            self._say(name, message)
        return self.hear(kind, nodes)

    def hear(self, kind: type[Any], nodes: Sequence[str]) -> dict[str, Any]:
        """A message of `kind` from each of the nodes; others than heartbeats may not come."""
        answers: dict[str, Any] = {}
        while set(nodes) - set(answers):
            message = self._receive()
            if not isinstance(message, Heartbeat):
                assert isinstance(message, kind), message
                answers[message.name if isinstance(message, Register) else message.node] = message
        return answers

    def server_stats(self) -> dict[str, ServerStats]:
        """What servers tell of themselves when they close the job."""
        closed = self.ask(JobClosed, [*self.servers, *self.workers], CloseJob(TERM, JOB, "done"))
        return {name: closed[name].stats for name in self.servers}

    def close(self) -> None:
        """Let all processes end, and look that they end well."""
        with self._resources:
            for name in self._identities:
                self._say(name, Shutdown("done"))
            for process in self._processes:
                result = ended(process)
                assert (result.status, result.stdout) == (0, ""), result

    def _say(self, name: str, message: ToNode) -> None:
        self._socket.send_multipart([self._identities[name], encode(message)])

    def _receive(self) -> FromNode:
        assert self._socket.poll(int(DEADLINE_S * 1000)), "the nodes said nothing"
        identity, *frames = self._socket.recv_multipart()
        message = decode_from_node(frames)
        if isinstance(message, Register):
            self._identities[message.name] = identity
            self._say(message.name, Welcome(message.name, TERM))
        elif isinstance(message, Heartbeat):
            self._say(message.node, Welcome(message.node, TERM))
        return message


@contextlib.contextmanager
def scripted_cluster(commands: Commands, num_servers: int, devices: Sequence[str]) -> Iterator[ScriptedCluster]:
    """A cluster whose processes have all ended well in the end."""
    cluster = ScriptedCluster(commands, num_servers, devices)
    yield cluster
    cluster.close()
