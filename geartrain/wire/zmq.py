"""The data plane over ZeroMQ: a ROUTER that only routes, worker threads that compute, a DEALER per peer.

No bulk byte is copied in Python. High-water marks are small, because they count messages whatever their size; a full
queue at a server is felt by its clients through them.
"""

from __future__ import annotations

import errno
import logging
import math
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from geartrain.errors import PortInUseError
from geartrain.wire.framing import MAX_FRAME_BYTES, Frame
from geartrain.wire.transport import Buffers, RequestHandler

HIGH_WATER_MARK = 8
MAX_QUEUED = 256
"""Requests that wait for a worker thread; beyond it the ROUTER is not read and senders feel their high-water marks."""
TICK_MS = 50
"""How often `RequestHandler.expire` is called when nothing happens."""

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _RoutedRequest:
    server: RouterServer
    identity: Frame
    frames: Sequence[Frame]
    arrived_s: float

    def reply(self, frames: Buffers) -> None:
        self.server.send_reply(self.identity, frames)

    def requeue(self) -> None:
        self.server.enqueue(self)


class RouterServer:
    """A ROUTER socket in a thread of its own, and `num_threads` threads that call the handler."""

    def __init__(self, context: Context, address: str, handler: RequestHandler, num_threads: int = 2) -> None:
        """Binds and starts. Raises `PortInUseError` when the address is taken."""
        self._context = context
        self._handler = handler
        self._router = _bind(context, address)
        self.address: str = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._replies_address = f"inproc://replies-{id(self)}"
        self._replies = context.socket(zmq.PULL)
        self._replies.setsockopt(zmq.RCVHWM, 0)  # bounded by the requests under way
        self._replies.bind(self._replies_address)
        self._queue: queue.SimpleQueue[_RoutedRequest | None] = queue.SimpleQueue()
        self._outgoing = threading.local()
        self._threads = [threading.Thread(target=self._route, name="tier-router", daemon=True)]
        self._threads += [
            threading.Thread(target=self._work, name=f"tier-worker-{i}", daemon=True) for i in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queue_length(self) -> int:
        return self._queue.qsize()

    def enqueue(self, request: _RoutedRequest) -> None:
        """Have a worker thread handle `request`. From any thread."""
        self._queue.put(request)

    def send_reply(self, identity: Frame, frames: Buffers) -> None:
        """Pass an answer to the routing thread. From worker threads only: each has its own socket for it."""
        outgoing: Socket = self._outgoing.socket
        parts: list[Any] = [identity, *frames]
        outgoing.send_multipart(parts, copy=False)

    def close(self) -> None:
        """End all threads; requests not handled yet are dropped."""
        for _ in self._threads[1:]:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        outgoing = self._context.socket(zmq.PUSH)
        outgoing.setsockopt(zmq.SNDHWM, 0)
        outgoing.connect(self._replies_address)
        self._outgoing.socket = outgoing
        while (request := self._queue.get()) is not None:
            self._handler.handle(request, time.monotonic())
        outgoing.send(b"")  # the routing thread counts these, and ends with the last
        outgoing.close(linger=-1)  # inproc: the bytes are handed over, nothing to wait for

    def _route(self) -> None:
        poller = zmq.Poller()
        poller.register(self._replies, zmq.POLLIN)
        working = len(self._threads) - 1
        while working:
            poller.register(self._router, zmq.POLLIN if self._queue.qsize() < MAX_QUEUED else 0)
            events = dict(poller.poll(TICK_MS))
            if self._replies in events:
                working -= self._forward_replies()
            if self._router in events:
                self._take_requests()
            self._handler.expire(time.monotonic())
        self._replies.close(linger=0)
        self._router.close(linger=0)

    def _take_requests(self) -> None:
        for _ in range(HIGH_WATER_MARK):
            try:
                identity, *frames = self._router.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return
            self._queue.put(_RoutedRequest(self, identity, frames, time.monotonic()))

    def _forward_replies(self) -> int:
        """Send what worker threads answered; the number of worker threads that ended."""
        ended = 0
        while True:
            try:
                frames = self._replies.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return ended
            if len(frames) == 1:
                ended += 1
                continue
            try:
                self._router.send_multipart(frames, zmq.DONTWAIT, copy=False)
            except zmq.ZMQError as error:
                # The asker gave up on that socket, or reads nothing: it asks again with the same sequence.
                if error.errno not in (errno.EHOSTUNREACH, errno.EAGAIN):
                    raise
                _log.info("dropped an answer: %s", error)


class DealerClient:
    """One DEALER socket per peer. Used by one thread at a time."""

    def __init__(self, context: Context, addresses: Sequence[str]) -> None:
        """Connections are made in the background; an address where nobody listens is no error here."""
        self._context = context
        self._addresses = list(addresses)
        self._poller = zmq.Poller()
        self._peers: dict[Socket, int] = {}
        self._sockets: list[Socket] = []
        for peer in range(len(addresses)):
            self._sockets.append(self._connect(peer))

    def send(self, peer: int, frames: Buffers) -> None:
        """Hand a request to the connection; lost if the peer takes nothing, as an unreachable one."""
        parts: list[Any] = list(frames)
        try:
            self._sockets[peer].send_multipart(parts, zmq.DONTWAIT, copy=False)
        except zmq.Again:
            _log.info("%s takes no more requests", self._addresses[peer])

    def receive(self, timeout_s: float) -> tuple[int, Sequence[Frame]] | None:
        """The next answer and the peer it is from, or None when none came in time."""
        for socket, _ in self._poller.poll(max(0, math.ceil(timeout_s * 1000))):
            return self._peers[socket], socket.recv_multipart(copy=False)
        return None

    def reconnect(self, peer: int) -> None:
        """Drop the connection with all that is under way in it, and make a new one."""
        self._drop(self._sockets[peer])
        self._sockets[peer] = self._connect(peer)

    def close(self) -> None:
        """Drop all connections with all that is under way in them."""
        for socket in list(self._peers):
            self._drop(socket)

    def _connect(self, peer: int) -> Socket:
        socket = self._context.socket(zmq.DEALER)
        _limit(socket)
        socket.connect(self._addresses[peer])
        self._poller.register(socket, zmq.POLLIN)
        self._peers[socket] = peer
        return socket

    def _drop(self, socket: Socket) -> None:
        self._poller.unregister(socket)
        del self._peers[socket]
        socket.close(linger=0)


def _bind(context: Context, address: str) -> Socket:
    router = context.socket(zmq.ROUTER)
    _limit(router)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        router.close(linger=0)
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortInUseError(f"{address} is in use", address=address) from error
    return router


def _limit(socket: Socket) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
