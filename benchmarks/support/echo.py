"""The least that a request can cost on a transport: the same bytes there and back through the same kind of sockets."""

from __future__ import annotations

import multiprocessing
import struct
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

_REPLY_BYTES = struct.Struct("<Q")
_END = _REPLY_BYTES.pack(0)


class EchoServer:
    """A process whose socket answers every request with as many bytes as the request wants; a context manager."""

    def __init__(self, address: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, address), daemon=True)
        self.address = ""

    def __enter__(self) -> EchoServer:
        self._process.start()
        self.address = str(self._pipe.recv())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
            return
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.connect(self.address)
        socket.send_multipart([_END, b""])
        self._process.join()
        socket.close(linger=0)


class EchoClient:
    """One connection to an echo server."""

    def __init__(self, address: str) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(address)

    def ask(self, buffers: Sequence[NDArray[Any]], reply_bytes: int) -> None:
        """Send the buffers, and wait for `reply_bytes` >= 1 bytes; nothing is copied on this side."""
        parts: list[Any] = [_REPLY_BYTES.pack(reply_bytes), *buffers]
        self._socket.send_multipart(parts, copy=False)
        _, reply = self._socket.recv_multipart(copy=False)
        if len(reply) != reply_bytes:
            raise RuntimeError(f"an echo of {len(reply)} bytes, not {reply_bytes}")

    def close(self) -> None:
        self._socket.close()


def _serve(pipe: Connection, address: str) -> None:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(address)
    pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    answer = np.empty(0, dtype=np.uint8)
    while True:
        identity, header, *_ = socket.recv_multipart(copy=False)
        (size,) = _REPLY_BYTES.unpack(header.bytes)
        if size == 0:
            break
        if len(answer) != size:
            answer = np.zeros(size, dtype=np.uint8)
        parts: list[Any] = [identity, header, answer]
        socket.send_multipart(parts, copy=False)
    socket.close()
