"""What the data plane needs of a transport: requests that can be answered or put back, and peers to send to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import zmq
from numpy.typing import NDArray

from geartrain.wire.framing import Frame

Buffers = Sequence[bytes | NDArray[Any] | zmq.Frame]
"""Frames to send. Arrays are C-contiguous and not copied: their owner leaves them as they are until an answer came."""


class Request(Protocol):
    """One request at the server that received it."""

    @property
    def frames(self) -> Sequence[Frame]:
        """Header frame and buffers, valid as long as something refers to them."""

    @property
    def arrived_s(self) -> float:
        """When it was received, on the clock that `RequestHandler` is told."""

    def reply(self, frames: Buffers) -> None:
        """Send the answer to who asked; lost if that socket is gone. Only within `RequestHandler.handle`."""

    def requeue(self) -> None:
        """Have it handled again. From any thread."""


class RequestHandler(Protocol):
    """Answers requests. `handle` runs in several threads at once, `expire` in the routing thread."""

    def handle(self, request: Request, now_s: float) -> None:
        """Reply to `request`, or keep it and requeue it later. Must not raise."""

    def expire(self, now_s: float) -> None:
        """Called several times a second: requeue what was kept for too long. Must be quick."""


class ServerTransport(Protocol):
    """The receiving end of the data plane."""

    @property
    def address(self) -> str:
        """The address that was bound, with the port that was chosen."""

    @property
    def queue_length(self) -> int:
        """Requests received and not handled yet."""

    def close(self) -> None:
        """End all threads; requests not handled yet are dropped."""


class ClientTransport(Protocol):
    """Connections to numbered peers. Used by one thread at a time."""

    def send(self, peer: int, frames: Buffers) -> None:
        """Hand a request to the connection; lost if the peer takes nothing, as an unreachable one."""

    def receive(self, timeout_s: float) -> tuple[int, Sequence[Frame]] | None:
        """The next answer and the peer it is from, or None when none came in time."""

    def reconnect(self, peer: int) -> None:
        """Drop the connection with all that is under way in it, and make a new one."""

    def close(self) -> None:
        """Drop all connections with all that is under way in them."""
