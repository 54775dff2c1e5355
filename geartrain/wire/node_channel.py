"""A node's end of the control channel: one thread, one DEALER socket, messages in and out through queues.

The channel repeats `Register` until the coordinator answers, so nodes and coordinator may start in any order. From
then on it sends a `Heartbeat` every `heartbeat_s`, which the coordinator answers with `Welcome`; when nothing at all
was heard from it for `lease_s`, the coordinator counts as dead. A connection that breaks is made again below us, and
the coordinator then sees a new socket identity: it answers to the identity of a node's latest message.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable

import zmq

from geartrain.errors import DeadlineError, GeartrainError, RoleDiedError, WireError
from geartrain.timeouts import DEFAULT
from geartrain.wire.framing import MAX_CONTROL_BYTES, decode_to_node, encode
from geartrain.wire.messages import FromNode, Heartbeat, Refused, Register, ServerStats, ToNode, Welcome

FAREWELL_MS = 1000
"""How long `close` waits for the last messages to leave: a node's `NodeFailed` must not die with its socket."""


def _no_stats() -> ServerStats | None:
    return None


class NodeChannel:
    """Sends and receives control messages of one node. `send` and `receive` may be called by any thread.

    `stats` is called by the channel's thread before each heartbeat and must be quick.
    """

    def __init__(
        self,
        control_address: str,
        register: Register,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        *,
        stats: Callable[[], ServerStats | None] = _no_stats,
        lease_s: float = DEFAULT.lease_s,
        heartbeat_s: float = DEFAULT.heartbeat_s,
    ) -> None:
        self._address = control_address
        self._register = register
        self._context = context if context is not None else zmq.Context()
        self._owns_context = context is None
        self._stats = stats
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._inbox: queue.SimpleQueue[ToNode | Exception | None] = queue.SimpleQueue()
        self._outbox: deque[bytes] = deque()
        self._answered = threading.Event()
        self._welcome: Welcome | None = None
        self._failure: Exception | None = None
        self._closing = False
        self._last_heard_s = 0.0
        # Any thread wakes the channel's thread through this pair; the lock makes the sending end shareable.
        self._wake_lock = threading.Lock()
        self._wake_out, self._wake_in = _wake_pair(self._context)
        self._thread = threading.Thread(target=self._run, name="node-channel", daemon=True)

    def connect(self, deadline_s: float) -> Welcome:
        """Registers and waits for the coordinator's `Welcome`.

        Raises the coordinator's own error when it refuses the node, `DeadlineError` when it does not answer in time;
        the channel is closed then.
        """
        self._thread.start()
        self._answered.wait(deadline_s)
        if self._welcome is not None:
            return self._welcome
        error = self._failure or DeadlineError(
            f"the coordinator at {self._address} did not answer within {deadline_s:g} s",
            role="coordinator",
            address=self._address,
            deadline_s=deadline_s,
        )
        self.close()
        raise error

    def send(self, message: FromNode) -> None:
        """Queues `message`; what is sent before the coordinator's welcome leaves after it.

        Raises what ended the channel, if something did.
        """
        if self._failure is not None:
            raise self._failure
        self._outbox.append(encode(message))
        self._wake()

    def receive(self, timeout_s: float) -> ToNode | None:
        """The next message, or None when none came within `timeout_s`. Welcomes that answer heartbeats are not shown.

        Raises `WireError` for a message that cannot be decoded (the channel goes on), `RoleDiedError` when the
        coordinator was silent for a lease, and the coordinator's error when it has given up the node (the channel is
        over then, and every further call raises it again).
        """
        if self._failure is not None and self._inbox.empty():
            raise self._failure
        try:
            item = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        """Sends what is queued, as far as the coordinator takes it within a second, and ends the thread."""
        with self._wake_lock:
            if self._closing:
                return
            self._closing = True
            _knock(self._wake_out)
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._wake_in.close(linger=0)
        self._wake_out.close(linger=0)
        if self._owns_context:
            self._context.term()

    def _wake(self) -> None:
        with self._wake_lock:
            if not self._closing:
                _knock(self._wake_out)

    def _run(self) -> None:
        dealer = self._context.socket(zmq.DEALER)
        try:
            # IMMEDIATE: no message waits in a connection that does not exist; until then our queue keeps it.
            dealer.setsockopt(zmq.IMMEDIATE, 1)
            dealer.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL_BYTES)
            dealer.setsockopt(zmq.RECONNECT_IVL, 50)
            dealer.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
            dealer.connect(self._address)
            self._loop(dealer)
        except Exception as error:  # whatever ends the thread must reach the caller
            self._fail(error)
        finally:
            dealer.close(linger=FAREWELL_MS if self._failure is None else 0)
            self._wake_in.close(linger=0)

    def _loop(self, dealer: zmq.Socket[bytes]) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_in, zmq.POLLIN)
        next_beat_s = time.monotonic()
        while self._failure is None:
            poller.register(dealer, zmq.POLLIN | (zmq.POLLOUT if self._has_mail() else 0))
            poller.poll(math.ceil(max(0.0, next_beat_s - time.monotonic()) * 1000))
            while self._wake_in.poll(0):
                self._wake_in.recv()
            heard = self._read(dealer)
            closing = self._closing
            self._flush(dealer)
            if closing:
                return
            now_s = time.monotonic()
            if now_s - next_beat_s > self._lease_s / 2:
                # It was this process that stood still: what the coordinator says to the next beat tells how it is.
                self._last_heard_s = now_s
            # Looked at only after reading: a process that was stopped for a while first hears what waited for it.
            if self._welcome is not None and not heard and now_s - self._last_heard_s > self._lease_s:
                self._fail(self._lost())
            if now_s >= next_beat_s:
                self._beat(dealer)
                next_beat_s = now_s + self._heartbeat_s

    def _has_mail(self) -> bool:
        return self._welcome is not None and bool(self._outbox)

    def _read(self, dealer: zmq.Socket[bytes]) -> bool:
        heard = False
        while dealer.poll(0):
            frames = dealer.recv_multipart()
            heard = True
            self._last_heard_s = time.monotonic()
            try:
                self._take(decode_to_node(frames))
            except WireError as error:
                self._inbox.put(error)
        return heard

    def _take(self, message: ToNode) -> None:
        if isinstance(message, Welcome):
            if self._welcome is None:
                self._welcome = message
                self._answered.set()
        elif isinstance(message, Refused) and (message.final or self._welcome is None):
            self._fail(GeartrainError.from_dict(message.error))
        else:
            self._inbox.put(message)

    def _flush(self, dealer: zmq.Socket[bytes]) -> None:
        while self._has_mail():
            try:
                dealer.send(self._outbox[0], zmq.DONTWAIT)
            except zmq.Again:
                return
            self._outbox.popleft()

    def _beat(self, dealer: zmq.Socket[bytes]) -> None:
        message: FromNode = self._register
        if self._welcome is not None:
            message = Heartbeat(self._welcome.node, self._register.incarnation, self._stats())
        try:
            dealer.send(encode(message), zmq.DONTWAIT)
        except zmq.Again:
            return  # nobody there (yet, or any more): the deadline or the lease says so

    def _lost(self) -> RoleDiedError:
        return RoleDiedError(
            f"the coordinator at {self._address} was silent for {self._lease_s:g} s",
            role="coordinator",
            address=self._address,
            lease_s=self._lease_s,
        )

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._inbox.put(error)
        self._answered.set()


def _wake_pair(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    sender, receiver = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    address = f"inproc://wake-{id(sender)}-{id(receiver)}"
    sender.bind(address)
    receiver.connect(address)
    return sender, receiver


def _knock(wake_out: zmq.Socket[bytes]) -> None:
    # A full pipe means that the thread is being woken anyway; a pipe without its other end, that it has ended.
    with contextlib.suppress(zmq.Again):
        wake_out.send(b"", zmq.DONTWAIT)
