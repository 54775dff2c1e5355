"""Calls to several servers at once: sent, answered, asked again after a silence, given up at a deadline."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np

from geartrain.errors import DeadlineError, GeartrainError
from geartrain.wire.framing import UNREADABLE, Frame, decode_reply_header
from geartrain.wire.messages import Dense, Failed, FromServer, Origin, Route, Rows
from geartrain.wire.transport import Buffers, ClientTransport

ATTEMPTS = 3
"""Within a deadline a silent server is asked this often, each time on a new socket and with the same sequence."""

# Clients of one process share their worker's incarnation, so sequences are unique in the process.
_SEQUENCES = itertools.count(1)


class Links(Protocol):
    """A worker's way to the servers, where it is to be slower than the real one. Each call waits until the bytes have
    passed, and returns the seconds that it waited."""

    def upload(self, num_bytes: int) -> float:
        """To the servers."""

    def download(self, num_bytes: int) -> float:
        """From the servers."""


@dataclass(slots=True)
class Call:
    """One request to several servers, and the answers so far. `requests[server]` is kept to send it again."""

    sequence: int
    requests: dict[int, Buffers] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    arrived: deque[tuple[int, FromServer, Sequence[Frame]]] = field(default_factory=deque)
    sent_s: dict[int, float] = field(default_factory=dict)
    retry_s: dict[int, float] = field(default_factory=dict)
    """When a server that said nothing is asked again on a new socket."""
    late: dict[int, DeadlineError] = field(default_factory=dict)
    """What a server said that lives but does not have the version yet."""


class ServerCalls:
    """All calls of one client. Used by one thread at a time; closes the transport."""

    def __init__(self, route: Route, origin: Origin, deadline_s: float, transport: ClientTransport) -> None:
        """`deadline_s` for each call, attempts at an unreachable server included; `origin` but for its sequence."""
        self._route = route
        self._origin = origin
        self._deadline_s = deadline_s
        self._attempt_s = deadline_s / ATTEMPTS
        self._transport = transport
        self._links: Links | None = None
        self._open: dict[int, Call] = {}
        self._parked_s = 0.0

    @property
    def parked_s(self) -> float:
        """Seconds that all calls so far have waited only because servers did not have the version yet."""
        return self._parked_s

    def use_links(self, links: Links) -> None:
        """Have the bytes of requests and answers pass through `links`."""
        self._links = links

    def open(self) -> Call:
        """A new call, to which nothing was sent yet."""
        call = Call(next(_SEQUENCES))
        self._open[call.sequence] = call
        return call

    def origin_of(self, call: Call) -> Origin:
        """What each request of the call begins with."""
        return msgspec.structs.replace(self._origin, sequence=call.sequence)

    def send(self, call: Call, server: int, frames: Buffers) -> None:
        """Send the call's request to this server."""
        if self._links is not None:
            self._links.upload(_num_bytes(frames))
        call.requests[server] = frames
        call.waiting.add(server)
        self._send(call, server)

    def answers(self, call: Call) -> Iterator[tuple[int, FromServer, Sequence[Frame]]]:
        """Every server's answer as it comes. The deadline runs from here: the caller may have computed meanwhile.

        Raises `DeadlineError` naming the server.
        """
        now_s = time.monotonic()
        deadline_s = now_s + self._deadline_s
        call.retry_s = dict.fromkeys(call.waiting, now_s + self._attempt_s)
        try:
            while call.waiting or call.arrived:
                if call.arrived:
                    server, header, frames = call.arrived.popleft()
                    if self._links is not None:
                        passed_s = self._links.download(_num_bytes(frames))
                        deadline_s += passed_s  # meanwhile nobody listened for the other answers
                        call.retry_s = {other: at_s + passed_s for other, at_s in call.retry_s.items()}
                    yield server, header, frames
                    continue
                now_s = time.monotonic()
                if now_s >= deadline_s:
                    raise self._unanswered(call)
                for server in call.waiting:
                    if now_s >= call.retry_s[server]:
                        self._renew(server)
                        call.retry_s[server] = now_s + self._attempt_s
                        call.late.pop(server, None)
                answer = self._transport.receive(min(deadline_s, *map(call.retry_s.__getitem__, call.waiting)) - now_s)
                if answer is not None:
                    self._sort(*answer, since_s=now_s)
        finally:
            self._open.pop(call.sequence, None)

    def close(self) -> None:
        """Drop all connections; calls under way are forgotten."""
        self._open.clear()
        self._transport.close()

    def _send(self, call: Call, server: int) -> None:
        call.sent_s[server] = time.monotonic()
        self._transport.send(server, call.requests[server])

    def _sort(self, server: int, frames: Sequence[Frame], since_s: float) -> None:
        """Give an answer, for which nothing was done but wait since `since_s`, to the call that it belongs to.

        Answers to calls that ended, and doubles, are dropped.
        """
        header = decode_reply_header(frames)
        if isinstance(header, Failed) and header.sequence == UNREADABLE:
            raise GeartrainError.from_dict(header.error)
        call = self._open.get(header.sequence)
        if call is None or server not in call.waiting:
            return
        now_s = time.monotonic()
        if isinstance(header, Failed):
            error = GeartrainError.from_dict(header.error)
            if isinstance(error, DeadlineError):  # it was parked all the time, and will be again
                self._parked_s += now_s - since_s
                call.late[server] = error
                call.retry_s[server] = now_s + self._attempt_s
                self._send(call, server)
                return
        if isinstance(header, Rows | Dense):
            parked_until_s = call.sent_s[server] + header.parked_ms / 1000
            self._parked_s += max(0.0, min(now_s, parked_until_s) - since_s)
        call.waiting.discard(server)
        call.arrived.append((server, header, frames))

    def _renew(self, server: int) -> None:
        self._transport.reconnect(server)
        for call in self._open.values():
            if server in call.waiting:
                self._send(call, server)

    def _unanswered(self, call: Call) -> DeadlineError:
        """Names a server that said nothing, or else one that lacks the version."""
        server = min(call.waiting - set(call.late), default=min(call.waiting))
        name, address = self._route.servers[server], self._route.addresses[server]
        late = call.late.get(server)
        reason = "did not answer" if late is None else f"did not get version {late.facts.get('wanted')}"
        return DeadlineError(
            f"embedding server {name} at {address} {reason} within {self._deadline_s:g} s",
            **{
                **({} if late is None else late.facts),
                "role": name,
                "address": address,
                "deadline_s": self._deadline_s,
            },
        )


def _num_bytes(frames: Sequence[Any]) -> int:
    return sum(frame.nbytes if isinstance(frame, np.ndarray) else len(frame) for frame in frames)
