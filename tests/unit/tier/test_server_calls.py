"""Calls to servers on a clock of the test: what was waited for versions is told apart, and links take their time."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from embedding_tier import calls as calls_module
from embedding_tier.calls import ServerCalls
from geartrain.errors import DeadlineError
from geartrain.wire.framing import Frame, encode
from geartrain.wire.messages import Done, Failed, FromServer, Origin, Route, Rows
from geartrain.wire.transport import Buffers

ROUTE = Route(1, ["s0", "s1"], ["ipc://s0", "ipc://s1"], [0, 1])
DEADLINE_S = 30.0


class Clock:
    time_s = 50.0

    def monotonic(self) -> float:
        return self.time_s


class ScriptedServers:
    """A transport whose answers come at given times, each with some payload."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.answers: list[tuple[float, int, FromServer, int]] = []
        self.sent: list[tuple[float, int]] = []

    def answer(self, at_s: float, server: int, header: FromServer, num_bytes: int = 0) -> None:
        self.answers.append((at_s, server, header, num_bytes))

    def send(self, peer: int, frames: Buffers) -> None:
        self.sent.append((self._clock.time_s, peer))

    def receive(self, timeout_s: float) -> tuple[int, Sequence[Frame]] | None:
        if not self.answers or self.answers[0][0] > self._clock.time_s + timeout_s:
            self._clock.time_s += timeout_s
            return None
        at_s, server, header, num_bytes = self.answers.pop(0)
        self._clock.time_s = max(self._clock.time_s, at_s)
        return server, [encode(header), bytes(num_bytes)]

    def reconnect(self, peer: int) -> None:
        pass

    def close(self) -> None:
        pass


class SlowLinks:
    """A second for each message, whatever its size; notes the sizes."""

    def __init__(self, clock: Clock, seconds: float = 1.0) -> None:
        self._clock = clock
        self._seconds = seconds
        self.up: list[int] = []
        self.down: list[int] = []

    def upload(self, num_bytes: int) -> float:
        self.up.append(num_bytes)
        self._clock.time_s += self._seconds
        return self._seconds

    def download(self, num_bytes: int) -> float:
        self.down.append(num_bytes)
        self._clock.time_s += self._seconds
        return self._seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(calls_module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def servers(clock: Clock) -> ScriptedServers:
    return ScriptedServers(clock)


@pytest.fixture
def calls(servers: ScriptedServers) -> ServerCalls:
    return ServerCalls(ROUTE, Origin("t", 1, 1, "w0", 1, 0, 7.5), DEADLINE_S, servers)


def test_what_a_server_parked_is_no_time_of_ones_own(
    clock: Clock, servers: ScriptedServers, calls: ServerCalls
) -> None:
    call = calls.open()
    for server in (0, 1):
        calls.send(call, server, [b"header", b"keys"])
    # Both waited 4 s for the version; then one needed 0.5 s for its rows, the other 0.7 s.
    servers.answer(54.5, 0, Rows(call.sequence, 1, 1, 4000.0))
    servers.answer(54.7, 1, Rows(call.sequence, 1, 1, 4000.0))
    assert [server for server, _, _ in calls.answers(call)] == [0, 1]
    assert calls.parked_s == pytest.approx(4.0)


def test_parking_of_one_server_while_another_works_counts_as_far_as_it_was_waited_for(
    clock: Clock, servers: ScriptedServers, calls: ServerCalls
) -> None:
    call = calls.open()
    for server in (0, 1):
        calls.send(call, server, [b"header", b"keys"])
    servers.answer(51.0, 0, Rows(call.sequence, 1, 1, 0.0))
    servers.answer(54.2, 1, Rows(call.sequence, 1, 1, 4000.0))
    list(calls.answers(call))
    assert calls.parked_s == pytest.approx(3.0), "in the first second the worker waited for server 0, which worked"


def test_parking_during_the_callers_own_work_is_not_waiting(
    clock: Clock, servers: ScriptedServers, calls: ServerCalls
) -> None:
    call = calls.open()
    calls.send(call, 0, [b"header", b"keys"])
    clock.time_s += 3.5
    servers.answer(54.1, 0, Rows(call.sequence, 1, 1, 4000.0))
    list(calls.answers(call))
    assert calls.parked_s == pytest.approx(0.5)


def test_a_request_that_was_refused_for_its_version_was_parked_all_the_time(
    clock: Clock, servers: ScriptedServers, calls: ServerCalls
) -> None:
    call = calls.open()
    calls.send(call, 0, [b"header", b"keys"])
    late = DeadlineError("version 1 did not come", role="server", deadline_s=7.5, wanted=1, current=0)
    servers.answer(57.5, 0, Failed(call.sequence, late.to_dict()))
    servers.answer(60.0, 0, Rows(call.sequence, 1, 1, 2000.0))
    list(calls.answers(call))
    assert calls.parked_s == pytest.approx(7.5 + 2.0)
    assert servers.sent == [(50.0, 0), (57.5, 0)]


@pytest.mark.parametrize("parked_ms", [float("nan"), float("inf"), -1e300, 1e300])
def test_no_answer_makes_the_account_senseless(
    clock: Clock, servers: ScriptedServers, calls: ServerCalls, parked_ms: float
) -> None:
    call = calls.open()
    calls.send(call, 0, [b"header", b"keys"])
    servers.answer(52.0, 0, Rows(call.sequence, 1, 1, parked_ms))
    list(calls.answers(call))
    assert 0.0 <= calls.parked_s <= 2.0


def test_bytes_pass_the_links_before_they_are_sent_and_after_they_came(
    clock: Clock, servers: ScriptedServers, calls: ServerCalls
) -> None:
    links = SlowLinks(clock)
    calls.use_links(links)
    call = calls.open()
    for server in (0, 1):
        calls.send(call, server, [b"header", bytes(100 + server)])
    assert servers.sent == [(51.0, 0), (52.0, 1)]
    for server in (0, 1):
        servers.answer(52.5, server, Done(call.sequence, 1), 1000 * (1 + server))
    list(calls.answers(call))
    assert clock.time_s == pytest.approx(54.5)
    header = len(encode(Done(call.sequence, 1)))
    assert (links.up, links.down) == ([106, 107], [header + 1000, header + 2000])


def test_a_slow_link_is_no_silent_server(clock: Clock, servers: ScriptedServers, calls: ServerCalls) -> None:
    calls.use_links(SlowLinks(clock, DEADLINE_S * 2))
    call = calls.open()
    for server in (0, 1):
        calls.send(call, server, [b"header"])
        servers.answer(0.0, server, Done(call.sequence, 1))
    sent = list(servers.sent)
    assert len(list(calls.answers(call))) == 2
    assert servers.sent == sent, "nobody was asked again"
