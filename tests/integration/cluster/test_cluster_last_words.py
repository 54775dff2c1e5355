"""A coordinator that stops is heard: it hangs up after its nodes, not before."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from coordinator import control as control_module
from coordinator.control import ControlServer
from coordinator.core import Core, CoreSettings
from geartrain.store import SqliteStore
from geartrain.wire.framing import decode_to_node, encode
from geartrain.wire.messages import Heartbeat, Refused, Register, Shutdown, Welcome

PATIENT_MS = 30_000


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlServer]:
    with closing(SqliteStore(tmp_path / "state.sqlite")) as store:
        core = Core(CoreSettings("token", 60.0, 1, 1, tmp_path), store.raise_term(), time.time)
        started = ControlServer(core, store, "tcp://127.0.0.1:0")
        started.start()
        yield started


@pytest.fixture
def node(control: ControlServer) -> Iterator[zmq.Socket[bytes]]:
    """A server that has joined."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(control.address)
        dealer.send(encode(Register("server", "token", 7, "ipc://s0", "cpu", "host", "s0")))
        assert isinstance(heard(dealer), Welcome)
        yield dealer


def heard(dealer: zmq.Socket[bytes]) -> object:
    assert dealer.poll(PATIENT_MS)
    return decode_to_node(dealer.recv_multipart())


def test_a_coordinator_hangs_up_when_its_nodes_have(
    control: ControlServer, node: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "FAREWELL_S", PATIENT_MS / 1000)
    stopping = threading.Thread(target=control.close)
    stopping.start()
    while not isinstance(heard(node), Shutdown):
        pass
    for _ in range(100):  # it does not hang up on a node that still writes
        node.send(encode(Heartbeat("s0", 7)))
    assert not control.ended.is_set()
    node.close()
    stopping.join(PATIENT_MS / 1000)
    assert control.ended.is_set() and control.failure is None


def test_a_coordinator_does_not_wait_for_ever(
    control: ControlServer, node: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "FAREWELL_S", 0.01)
    control.close()
    assert control.ended.is_set() and control.failure is None
    assert isinstance(heard(node), Shutdown)


def test_a_coordinator_without_nodes_stops_at_once(control: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "FAREWELL_S", PATIENT_MS / 1000)
    began_s = time.monotonic()
    control.close()
    assert control.ended.is_set() and time.monotonic() - began_s < PATIENT_MS / 2000


def test_a_coordinator_does_not_wait_for_a_node_that_is_gone(
    control: ControlServer, node: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "FAREWELL_S", PATIENT_MS / 1000)
    node.close()
    while control.call(lambda core, now_s: (control._answer(control._identities["s0"], Refused({})), [])):
        pass
    began_s = time.monotonic()
    control.close()
    assert control.ended.is_set() and time.monotonic() - began_s < PATIENT_MS / 2000
