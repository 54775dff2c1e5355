"""The node's end of the control channel against a scripted coordinator on a real socket."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from geartrain.errors import AuthError, DeadlineError, RoleDiedError, StaleMessageError, WireError
from geartrain.wire import node_channel
from geartrain.wire.framing import decode_from_node, encode
from geartrain.wire.messages import (
    Decided,
    FromNode,
    Heartbeat,
    JobClosed,
    Refused,
    Register,
    ServerStats,
    Shutdown,
    ToNode,
    Welcome,
)
from geartrain.wire.node_channel import NodeChannel

REGISTER = Register("worker", "token", 9, "", "cpu", "host", "")
PATIENT_S = 60.0


class Coordinator:
    """A ROUTER socket whose answers a test writes."""

    def __init__(self, address: str = "tcp://127.0.0.1:*") -> None:
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(address)
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def hear(self) -> tuple[bytes, FromNode]:
        identity, *frames = self.socket.recv_multipart()
        return identity, decode_from_node(frames)

    def hear_until(self, kind: type[FromNode]) -> FromNode:
        while not isinstance(message := self.hear()[1], kind):
            pass
        return message

    def say(self, identity: bytes, message: ToNode | bytes) -> None:
        self.socket.send_multipart([identity, message if isinstance(message, bytes) else encode(message)])

    def welcome(self) -> bytes:
        """Answers a registration; who registered."""
        identity, message = self.hear()
        assert message == REGISTER
        self.say(identity, Welcome("w0", 3))
        return identity


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    one = Coordinator()
    yield one
    one.socket.close()


OpenChannel = Callable[..., NodeChannel]


@pytest.fixture
def open_channel() -> Iterator[OpenChannel]:
    with contextlib.ExitStack() as stack:

        def start(address: str, **settings: object) -> NodeChannel:
            channel = NodeChannel(address, REGISTER, **{"heartbeat_s": 0.01, **settings})  # type: ignore[arg-type]
            stack.callback(channel.close)
            return channel

        yield start


def connect(channel: NodeChannel, coordinator: Coordinator) -> bytes:
    """Connects while the coordinator welcomes the node; its identity there."""
    answers: list[Welcome] = []
    thread = threading.Thread(target=lambda: answers.append(channel.connect(PATIENT_S)))
    thread.start()
    identity = coordinator.welcome()
    thread.join()
    assert answers == [Welcome("w0", 3)]
    return identity


def test_messages_travel_both_ways_and_echoes_are_not_shown(
    coordinator: Coordinator, open_channel: OpenChannel
) -> None:
    channel = open_channel(coordinator.address, stats=lambda: ServerStats({}, 1, 2, 3))
    identity = connect(channel, coordinator)
    assert coordinator.hear_until(Heartbeat) == Heartbeat("w0", 9, ServerStats({}, 1, 2, 3))
    channel.send(JobClosed("w0", "j"))
    assert coordinator.hear_until(JobClosed) == JobClosed("w0", "j")
    coordinator.say(identity, Welcome("w0", 3))
    coordinator.say(identity, Decided(1, 2, 3, 4))
    coordinator.say(identity, Refused({"code": "stale_message", "message": "m"}))
    assert channel.receive(PATIENT_S) == Decided(1, 2, 3, 4)
    assert isinstance(channel.receive(PATIENT_S), Refused)
    assert channel.receive(0.0) is None


def test_what_cannot_be_decoded_is_an_error_and_the_channel_goes_on(
    coordinator: Coordinator, open_channel: OpenChannel
) -> None:
    channel = open_channel(coordinator.address)
    identity = connect(channel, coordinator)
    coordinator.say(identity, b"\xc1")
    coordinator.say(identity, Shutdown("done"))
    with pytest.raises(WireError):
        channel.receive(PATIENT_S)
    assert channel.receive(PATIENT_S) == Shutdown("done")


def test_the_node_may_be_there_first(open_channel: OpenChannel, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/late"
    channel = open_channel(address)
    channel.send(JobClosed("w0", "early"))
    started = threading.Event()
    answers: list[Welcome] = []

    def come_up() -> None:
        started.set()
        answers.append(channel.connect(PATIENT_S))

    thread = threading.Thread(target=come_up)
    thread.start()
    started.wait()
    late = Coordinator(address)
    late.welcome()
    thread.join()
    assert answers == [Welcome("w0", 3)]
    assert late.hear_until(JobClosed) == JobClosed("w0", "early")
    late.socket.close()


def test_a_refusal_is_the_coordinators_own_error(coordinator: Coordinator, open_channel: OpenChannel) -> None:
    channel = open_channel(coordinator.address)
    errors: list[Exception] = []

    def connect_badly() -> None:
        try:
            channel.connect(PATIENT_S)
        except AuthError as error:
            errors.append(error)

    thread = threading.Thread(target=connect_badly)
    thread.start()
    identity, _ = coordinator.hear()
    coordinator.say(identity, Refused(AuthError("wrong token", host="h").to_dict()))
    thread.join()
    assert len(errors) == 1 and errors[0].facts == {"host": "h"}  # type: ignore[attr-defined]


def test_a_node_that_the_coordinator_gave_up_ends(coordinator: Coordinator, open_channel: OpenChannel) -> None:
    """It was silent for too long, or the coordinator is another one: only a new process can join again."""
    channel = open_channel(coordinator.address)
    identity = connect(channel, coordinator)
    error = StaleMessageError("w0 is lost: it must start anew", node="w0")
    coordinator.say(identity, Refused(error.to_dict(), final=True))
    for _ in range(2):
        with pytest.raises(StaleMessageError, match="start anew"):
            channel.receive(PATIENT_S)
    with pytest.raises(StaleMessageError):
        channel.send(JobClosed("w0", "late"))


def test_nobody_there_is_a_deadline_error_with_the_address(open_channel: OpenChannel) -> None:
    probe = Coordinator()
    probe.socket.close()
    with pytest.raises(DeadlineError) as late:
        open_channel(probe.address).connect(0.05)
    assert late.value.facts == {"role": "coordinator", "address": probe.address, "deadline_s": 0.05}


def test_a_silent_coordinator_is_dead_after_the_lease(coordinator: Coordinator, open_channel: OpenChannel) -> None:
    channel = open_channel(coordinator.address, lease_s=0.2)
    identity = connect(channel, coordinator)
    coordinator.say(identity, Shutdown("first"))
    assert channel.receive(PATIENT_S) == Shutdown("first")
    for _ in range(3):
        with pytest.raises(RoleDiedError) as died:
            channel.receive(PATIENT_S)
        assert died.value.facts["role"] == "coordinator"
    with pytest.raises(RoleDiedError):
        channel.send(JobClosed("w0", "j"))


def test_a_node_that_stood_still_hears_first_what_the_coordinator_made_of_it(
    coordinator: Coordinator, open_channel: OpenChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood_still_s = [0.0]
    monkeypatch.setattr(node_channel, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + stood_still_s[0]))
    channel = open_channel(coordinator.address, lease_s=PATIENT_S)
    identity = connect(channel, coordinator)
    stood_still_s[0] = 2 * PATIENT_S
    coordinator.hear_until(Heartbeat)
    coordinator.say(identity, Refused(StaleMessageError("w0 is lost", node="w0").to_dict(), final=True))
    with pytest.raises(StaleMessageError, match="w0 is lost"):
        channel.receive(PATIENT_S)


def test_echoed_heartbeats_keep_the_lease(coordinator: Coordinator, open_channel: OpenChannel) -> None:
    channel = open_channel(coordinator.address, lease_s=0.5)
    identity = connect(channel, coordinator)
    for _ in range(80):
        coordinator.hear_until(Heartbeat)
        coordinator.say(identity, Welcome("w0", 3))
    coordinator.say(identity, Shutdown("still there"))
    assert channel.receive(PATIENT_S) == Shutdown("still there")


def test_an_error_in_the_channels_thread_reaches_the_receiver(
    coordinator: Coordinator, open_channel: OpenChannel
) -> None:
    def broken() -> ServerStats | None:
        raise ZeroDivisionError("broken")

    channel = open_channel(coordinator.address, stats=broken)
    connect(channel, coordinator)
    with pytest.raises(ZeroDivisionError):
        channel.receive(PATIENT_S)


def test_the_last_words_before_close_arrive(coordinator: Coordinator, open_channel: OpenChannel) -> None:
    channel = open_channel(coordinator.address)
    connect(channel, coordinator)
    for number in range(50):
        channel.send(JobClosed("w0", str(number)))
    closing = threading.Thread(target=channel.close)
    closing.start()
    heard = [coordinator.hear_until(JobClosed) for _ in range(50)]
    closing.join()
    assert heard == [JobClosed("w0", str(number)) for number in range(50)]


def test_many_threads_may_send(coordinator: Coordinator, open_channel: OpenChannel) -> None:
    channel = open_channel(coordinator.address)
    connect(channel, coordinator)

    def send_some(thread: int) -> None:
        for number in range(100):
            channel.send(JobClosed("w0", f"{thread}-{number}"))

    threads = [threading.Thread(target=send_some, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    heard = [coordinator.hear_until(JobClosed) for _ in range(400)]
    for thread in threads:
        thread.join()
    assert {message.job for message in heard} == {f"{t}-{n}" for t in range(4) for n in range(100)}  # type: ignore[union-attr]


def test_a_channel_that_was_never_connected_can_be_closed() -> None:
    NodeChannel("tcp://127.0.0.1:1", REGISTER).close()
