"""The shell of the core: one thread with the ROUTER socket that nodes talk to, the clock, the store and files.

Everything the core decides is carried out here in order: what is journaled stands in the store before the messages that
depend on it leave. Slow work (metrics over all scores, files) runs in a pool of one thread and comes back as an event.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec
import zmq

from coordinator.commands import (
    ClearCuts,
    Command,
    ComputeMetrics,
    CutFilesDone,
    FilesDone,
    ForgetPortraits,
    Journal,
    MetricsComputed,
    PrepareCut,
    PublishCut,
    RaiseTerm,
    SaveJob,
    SavePortrait,
    Send,
    ShellAnswer,
    TermRaised,
    WritePredictions,
    join_journals,
)
from coordinator.core import Core
from coordinator.cut_folders import CutFolders
from coordinator.membership import Joined, Lost, NodeRefused
from coordinator.predictions import write_predictions
from coordinator.scores import metrics_of
from geartrain.errors import GeartrainError, PortInUseError, RoleDiedError, StaleMessageError, WireError
from geartrain.store import StateStore
from geartrain.wire.framing import MAX_CONTROL_BYTES, decode_from_node, encode
from geartrain.wire.messages import FromNode, Heartbeat, Refused, Register, Shutdown, ToNode, Welcome

log = logging.getLogger("geartrain.coordinator")
_T = TypeVar("_T")

FAREWELL_S = 1.0
"""How long nodes that were told to shut down may take to hang up."""
TICK_S = 0.1
"""The longest the core is left without a look at the clock; an earlier due window wakes it earlier."""


class ControlServer:
    """Runs a core. `call` lets other threads use the core inside its thread; `close` ends it and tells all nodes."""

    def __init__(self, core: Core, store: StateStore, control_address: str) -> None:
        """Binds the ROUTER; `tcp://host:0` takes a free port. Raises `PortInUseError`."""
        self._core = core
        self._store = store
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        # Closing ends as soon as the last words are out; on a busy machine that takes a while.
        self._router.setsockopt(zmq.LINGER, 3000)
        self._router.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL_BYTES)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # what cannot be sent is an error here, not dropped in silence
        try:
            self._router.bind(control_address)
        except zmq.ZMQError as error:
            raise PortInUseError(
                f"cannot listen on {control_address}: {error}", address=control_address, expected="a free address"
            ) from error
        self.address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._wake = self._context.socket(zmq.PULL)
        self._wake.bind("inproc://wake-core")
        self._waker = self._context.socket(zmq.PUSH)
        self._waker.connect("inproc://wake-core")
        self._waker_lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._identities: dict[str, bytes] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._cut_folders = CutFolders()  # for the pool's thread
        self._closing = False
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control")

    def start(self) -> None:
        self._thread.start()

    def call(self, work: Callable[[Core, float], tuple[_T, list[Command]]]) -> _T:
        """Run `work(core, now_s)` in the core's thread, carry out its commands, and give its value (or raise)."""
        answer: Future[_T] = Future()

        def run() -> None:
            try:
                value, commands = work(self._core, time.monotonic())
                self._carry_out(commands)
            except BaseException as error:  # belongs to the caller
                answer.set_exception(error)
            else:
                answer.set_result(value)

        self._post(run)
        return answer.result(timeout=60.0)

    def close(self) -> None:
        """Tell every node to shut down, and end the thread."""
        self._closing = True
        with contextlib.suppress(RoleDiedError):
            self._post(lambda: None)
        self._thread.join()

    def _post(self, run: Callable[[], None]) -> None:
        self._calls.put(run)
        with self._waker_lock:
            if self._waker.closed:
                raise RoleDiedError(f"the coordinator has ended: {self.failure}", role="coordinator")
            self._waker.send(b"")

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop()
        except StaleMessageError as error:
            log.error("another coordinator has taken over: %s", error)
            self.failure = error
        except BaseException as error:
            log.exception("the coordinator failed")
            self.failure = error
        finally:
            with self._waker_lock:
                self._waker.close()  # from now on calls are refused: nobody would answer them
            try:
                self._say_goodbye()
            finally:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._router.close()
                self._wake.close()
                self._context.term()
                self.ended.set()

    def _say_goodbye(self) -> None:
        """Tell every node to shut down, and wait until all have hung up, or `FAREWELL_S` are over.

        A connection that is closed while its other end still writes is reset: what is on its way there may be lost.
        """
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        with self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED) as hung_up:
            poller.register(hung_up, zmq.POLLIN)
            told = [self._send(name, Shutdown("the coordinator stops")) for name in self._identities]
            num_left, end_s = sum(told), time.monotonic() + FAREWELL_S
            while num_left > 0 and (left_s := end_s - time.monotonic()) > 0:
                for socket, _ in poller.poll(math.ceil(left_s * 1000)):
                    socket.recv_multipart()
                    num_left -= socket is hung_up
            self._router.disable_monitor()

    def _loop(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._wake, zmq.POLLIN)
        tick_s = time.monotonic()
        while not self._closing:
            poller.poll(math.ceil(max(0.0, self._next_tick(tick_s) - time.monotonic()) * 1000))
            # Messages before the clock: a loop that was held up must not take its own delay for a node's silence.
            while self._router.poll(0):
                self._receive(self._router.recv_multipart())
            while self._wake.poll(0):
                self._wake.recv()
                self._calls.get()()
            now_s = time.monotonic()
            if now_s >= self._next_tick(tick_s):
                self._carry_out(self._core.tick(now_s))
                tick_s = time.monotonic()

    def _next_tick(self, last_tick_s: float) -> float:
        due_s = self._core.wake_at_s
        regular_s = last_tick_s + TICK_S
        return regular_s if due_s is None else min(regular_s, due_s)

    def _receive(self, frames: list[bytes]) -> None:
        identity, *rest = frames
        try:
            message = decode_from_node(rest)
        except WireError as error:
            log.warning("dropped: %s", error)
            self._answer(identity, Refused(error.to_dict()))
            return
        now_s = time.monotonic()
        if isinstance(message, Register | Heartbeat):
            self._member(identity, message, now_s)
        elif self._identities.get(_node_of(message)) == identity:
            self._carry_out(self._core.message(message, now_s))
        else:
            stranger = StaleMessageError(f"{type(message).__name__} from {_node_of(message)!r}: not registered here")
            self._answer(identity, Refused(stranger.to_dict()))

    def _member(self, identity: bytes, message: Register | Heartbeat, now_s: float) -> None:
        for command in self._core.member(message, now_s):
            if isinstance(command, NodeRefused):
                log.warning("refused: %s", command.error)
                self._answer(identity, Refused(command.error.to_dict(), final=True))
            elif isinstance(command, Lost):
                self._carry_out(self._core.members_lost(command, now_s))
            elif isinstance(command, Joined):
                if not command.again:
                    log.info("%s joined: %s", command.node.name, command.reason)
                self._identities[command.node.name] = identity
                self._answer(identity, Welcome(command.node.name, self._core.term))
        if isinstance(message, Heartbeat) and self._core.knows(message.node, message.incarnation):
            self._identities[message.node] = identity
            self._answer(identity, Welcome(message.node, self._core.term))

    # --- carrying out ------------------------------------------------------------------------------------------------

    def _carry_out(self, commands: list[Command]) -> None:
        for command in join_journals(commands):
            match command:
                case Send():
                    self._send(command.node, command.message)
                case Journal():
                    self._store.append(self._core.term, command.job, command.entries)
                case SaveJob():
                    self._store.put(self._core.term, f"job/{command.job}", msgspec.json.encode(command.record))
                case SavePortrait():
                    self._store.put(self._core.term, f"portrait/{command.key}", msgspec.json.encode(command.record))
                case ForgetPortraits():
                    self._store.delete(self._core.term, [f"portrait/{key}" for key in command.keys])
                case RaiseTerm():
                    # The core must know the new term before anything else is written in the old one.
                    raised = TermRaised(command.job, self._store.raise_term(self._core.term))
                    self._carry_out(self._core.shell(raised, time.monotonic()))
                case ClearCuts():
                    self._pool.submit(self._cut_folders.clear, command.directory)
                case _:
                    self._slowly(command)

    def _event(self, event: ShellAnswer) -> None:
        self._post(lambda: self._carry_out(self._core.shell(event, time.monotonic())))

    def _slowly(self, command: ComputeMetrics | WritePredictions | PrepareCut | PublishCut) -> None:
        self._pool.submit(lambda: self._event(_carry_out_slowly(command, self._cut_folders)))

    def _send(self, node: str, message: ToNode) -> bool:
        """Whether the node is connected."""
        identity = self._identities.get(node)
        return identity is not None and self._answer(identity, message)

    def _answer(self, identity: bytes, message: ToNode) -> bool:
        try:
            self._router.send_multipart([identity, encode(message)], zmq.DONTWAIT)
        except zmq.ZMQError as error:  # the peer is gone or does not read: its lease decides about it
            log.warning("could not send %s: %s", type(message).__name__, error)
            return False
        return True


def _node_of(message: FromNode) -> str:
    return str(getattr(message, "node", ""))


def _carry_out_slowly(
    command: ComputeMetrics | WritePredictions | PrepareCut | PublishCut, cut_folders: CutFolders
) -> ShellAnswer:
    """Runs in the pool; every failure becomes an event."""
    done = CutFilesDone if isinstance(command, PrepareCut | PublishCut) else FilesDone
    try:
        match command:
            case ComputeMetrics():
                metrics = metrics_of(command.scores)
                return MetricsComputed(command.job, command.evaluation, command.split, metrics, time.time())
            case WritePredictions():
                write_predictions(command.path, command.scores)
            case PrepareCut():
                cut_folders.prepare(command.directory)
            case PublishCut():
                cut_folders.publish(command.temporary, command.final, command.manifest, command.expired)
    except GeartrainError as error:
        return done(command.job, error.to_dict())
    except OSError as error:
        where = next((f" {path}" for path in (error.filename, getattr(command, "path", None)) if path), "")
        return done(command.job, GeartrainError(f"cannot write{where}: {error.strerror}").to_dict())
    except Exception as error:
        log.exception("%s failed", type(command).__name__)
        return done(command.job, GeartrainError(f"{type(command).__name__}: {error}").to_dict())
    return done(command.job)
