"""`run` of an embedding server, driven by a scripted coordinator over its control channel."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
import zmq

from coordinator.routing import initial_route
from embedding_tier.__main__ import run
from embedding_tier.client import TierClient
from geartrain.errors import AuthError, ConfigError, GeartrainError
from geartrain.wire.framing import decode_from_node, encode
from geartrain.wire.messages import (
    Applied,
    Apply,
    CloseJob,
    DensePlaced,
    DenseSegment,
    FromNode,
    Heartbeat,
    JobClosed,
    JobOpened,
    OpenJob,
    PlaceDense,
    Refused,
    Register,
    Shutdown,
    TableSpec,
    ToNode,
    Welcome,
)

SPEC = TableSpec("a", 2, {"type": "sgd", "lr": 0.1}, {"type": "zero"}, 1)


class ScriptedCoordinator:
    """Welcomes one server and then says what the test says, echoing heartbeats meanwhile."""

    def __init__(self) -> None:
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.address = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.identity = b""
        self.registered: Register | None = None
        self.heartbeat: Heartbeat | None = None

    def hear(self) -> FromNode:
        """The next message that is no heartbeat."""
        while True:
            self.identity, *frames = self.socket.recv_multipart()
            message = decode_from_node(frames)
            if not isinstance(message, Heartbeat):
                return message
            self.heartbeat = message
            self.say(Welcome("s0", 1))

    def say(self, message: ToNode) -> None:
        self.socket.send_multipart([self.identity, encode(message)])

    def ask(self, message: ToNode) -> FromNode:
        self.say(message)
        return self.hear()

    def welcome(self) -> Register:
        message = self.hear()
        assert isinstance(message, Register)
        self.say(Welcome("s0", 1))
        return message


@pytest.fixture
def coordinator() -> Iterator[ScriptedCoordinator]:
    one = ScriptedCoordinator()
    yield one
    one.socket.close()


def start(**fields: str | None) -> tuple[threading.Thread, list[GeartrainError]]:
    errors: list[GeartrainError] = []
    settings = {"coordinator": None, "control_address": None, "data_address": None, "name": "", "token": "t", **fields}

    def serve() -> None:
        try:
            run(**settings)  # type: ignore[arg-type]
        except GeartrainError as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, errors


def test_a_job_from_opening_to_shutdown(coordinator: ScriptedCoordinator) -> None:
    thread, errors = start(control_address=coordinator.address, name="s0")
    register = coordinator.welcome()
    assert (register.role, register.token, register.name) == ("server", "t", "s0")
    assert register.address.startswith("tcp://127.0.0.1:")
    route = initial_route(["s0"], [register.address])
    assert coordinator.ask(OpenJob(1, "j", {}, {}, [SPEC], route, 0)) == JobOpened("s0", 1, "j", [])
    segments = [DenseSegment("w", (4,), 0, 4, "parameter")]
    assert coordinator.ask(PlaceDense(1, "j", segments, [0, 4], {"type": "sgd"}, "w0")) == DensePlaced("s0", 1, "j")
    client = TierClient(route, "w0", 1, 1, "t", 2)
    client.place_dense([0, 4])
    client.put_dense(np.ones(4, dtype=np.float32))
    out = np.empty(4, dtype=np.float32)
    apply = Apply(1, 1, [], 0.0, 1.0, 1.0, 0.1, {"a": 0.1}, [])
    assert coordinator.ask(apply) == Applied("s0", register.incarnation, 1, 1)
    assert client.pull_dense(1, out) == 1
    client.close()
    coordinator.heartbeat = None
    assert coordinator.ask(apply) == Applied("s0", register.incarnation, 1, 1)
    closed = coordinator.ask(CloseJob(1, "j", "done"))
    assert isinstance(closed, JobClosed)
    assert (closed.node, closed.job) == ("s0", "j")
    coordinator.say(Shutdown("done"))
    thread.join()
    assert errors == []


def test_heartbeats_carry_the_stats_of_the_open_job(coordinator: ScriptedCoordinator) -> None:
    thread, _ = start(control_address=coordinator.address)
    register = coordinator.welcome()
    coordinator.ask(OpenJob(1, "j", {}, {}, [SPEC], initial_route(["s0"], [register.address]), 7))
    while coordinator.heartbeat is None or coordinator.heartbeat.stats is None:
        frames = coordinator.socket.recv_multipart()
        message = decode_from_node(frames[1:])
        assert isinstance(message, Heartbeat)
        coordinator.heartbeat = message
        coordinator.say(Welcome("s0", 1))
    assert coordinator.heartbeat.stats.version == 7
    assert coordinator.heartbeat.stats.tables["a"].num_rows == 0
    coordinator.say(Shutdown("done"))
    thread.join()


def test_a_refused_server_ends_with_the_coordinators_error(coordinator: ScriptedCoordinator) -> None:
    thread, errors = start(control_address=coordinator.address)
    coordinator.hear()
    coordinator.say(Refused(AuthError("wrong token").to_dict()))
    thread.join()
    assert [error.code for error in errors] == ["unauthorized"]


def test_the_control_address_is_learned_from_the_api(coordinator: ScriptedCoordinator) -> None:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/healthz"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"control": coordinator.address}).encode())

        log_message: Callable[..., None] = staticmethod(lambda *_: None)

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        thread, errors = start(coordinator=f"127.0.0.1:{server.server_port}")
        coordinator.welcome()
        answering.join()
    coordinator.say(Shutdown("done"))
    thread.join()
    assert errors == []


def test_no_coordinator_at_all_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        run(coordinator=None, control_address=None, data_address=None, name="", token="t")
