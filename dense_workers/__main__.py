"""The worker's process: it registers with the coordinator and does what it is told, one message at a time."""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time

import pyarrow as pa
import torch

from dense_workers.device import open_device
from dense_workers.fetch import FetchFailed, ReadyStep
from dense_workers.group import GroupLeftError, use_loopback
from dense_workers.orders import LatestOrders
from dense_workers.trainer import JobTrainer, WorkerIdentity
from geartrain.device_spec import parse_device
from geartrain.errors import GeartrainError
from geartrain.memory import keep_freed_memory
from geartrain.wire.discovery import find_control_address, local_host_towards
from geartrain.wire.messages import (
    CloseJob,
    Decided,
    Evaluate,
    Grant,
    HostGroup,
    JobClosed,
    JoinGroup,
    NodeFailed,
    OpenJob,
    PlaceDense,
    Probe,
    Refused,
    Register,
    Shutdown,
    ToNode,
)
from geartrain.wire.node_channel import NodeChannel

REPEAT_S = 0.5
"""How often a step is reported again until a decision names it."""
CONNECT_DEADLINE_S = 60.0

log = logging.getLogger("geartrain.worker")


class Worker:
    """The main loop: messages of the coordinator and fetched steps arrive in one mailbox and are handled in turn."""

    def __init__(self, channel: NodeChannel, identity: WorkerIdentity) -> None:
        self._channel = channel
        self._identity = identity
        self._orders = LatestOrders()
        self._mailbox: queue.SimpleQueue[ToNode | ReadyStep | FetchFailed | Exception] = queue.SimpleQueue()
        self._trainer: JobTrainer | None = None
        self._failed_job = ""

    def run(self) -> None:
        """Serve until `Shutdown`; raises when the coordinator is lost."""
        threading.Thread(target=self._forward, name="control", daemon=True).start()
        repeated_s = time.monotonic()
        while True:
            try:
                item = self._mailbox.get(timeout=REPEAT_S)
            except queue.Empty:
                item = None
            if isinstance(item, Exception):
                raise item
            if isinstance(item, Shutdown):
                self._close_job()
                return
            if item is not None:
                self._guarded(item)
            if time.monotonic() - repeated_s > REPEAT_S and self._trainer is not None:
                self._trainer.repeat_reports()
                repeated_s = time.monotonic()

    def _forward(self) -> None:
        while True:
            try:
                message = self._channel.receive(timeout_s=3600.0)
            except Exception as error:  # handed to the main thread, which ends the process with it
                self._orders.take(error)
                self._mailbox.put(error)
                return
            if message is not None:
                self._orders.take(message)
                self._mailbox.put(message)

    def _guarded(self, item: ToNode | ReadyStep | FetchFailed) -> None:
        """Handle one item; an error ends the job on this worker and is reported, the worker itself goes on."""
        try:
            self._handle(item)
        except GroupLeftError as left:
            log.info("%s", left)  # what the coordinator said instead is in the mailbox
        except Exception as error:
            self._fail(self._told(error))

    def _told(self, error: Exception) -> GeartrainError:
        """An error as people are told of it."""
        if isinstance(error, GeartrainError):
            return error
        log.error("the job failed on this worker", exc_info=error)
        full = self._identity.device.memory_error(error)
        return full or GeartrainError(f"worker {self._identity.name}: {type(error).__name__}: {error}")

    def _handle(self, item: ToNode | ReadyStep | FetchFailed) -> None:
        match item:
            case OpenJob():
                self._open(item)
            case CloseJob():
                self._close_job()
                self._channel.send(JobClosed(self._identity.name, item.job))
            case Refused():
                log.warning("the coordinator refused a message: %s", item.error)
            case _ if self._trainer is not None:
                self._in_job(self._trainer, item)
            case _:
                log.info("%s without a job is dropped", type(item).__name__)

    def _in_job(self, trainer: JobTrainer, item: ToNode | ReadyStep | FetchFailed) -> None:
        match item:
            case ReadyStep():
                trainer.compute(item)
            case FetchFailed():
                trainer.fetch_failed(item)
            case _ if item.term != trainer.term:  # type: ignore[union-attr]
                log.info("%s of another term is dropped", type(item).__name__)
            case Grant():
                trainer.granted(item)
            case Decided():
                trainer.decided(item)
            case PlaceDense():
                trainer.place_dense(item)
            case Probe():
                trainer.probe(item)
            case HostGroup():
                trainer.host_group(item)
            case JoinGroup():
                trainer.join_group(item)
            case Evaluate():
                trainer.evaluate(item)

    def _open(self, message: OpenJob) -> None:
        self._failed_job = ""
        if self._trainer is not None and self._trainer.job == message.job:
            if self._trainer.term != message.term:  # else it was sent again
                self._trainer.reopen(message)
        else:
            self._close_job()
            try:
                self._trainer = JobTrainer(self._identity, message, self._channel.send, self._mailbox.put, self._orders)
            except Exception as error:
                self._report(self._told(error), message.term, message.job)
                return
        self._trainer.announce()

    def _fail(self, error: GeartrainError) -> None:
        trainer = self._trainer
        if trainer is None:
            log.error("%s", error)
            return
        self._report(error, trainer.term, trainer.job)
        self._close_job()

    def _report(self, error: GeartrainError, term: int, job: str) -> None:
        if job != self._failed_job:
            self._failed_job = job
            self._channel.send(NodeFailed(self._identity.name, term, job, error.to_dict()))

    def _close_job(self) -> None:
        if self._trainer is not None:
            self._trainer.close()
            self._trainer = None


def run(*, coordinator: str | None, control_address: str | None, device: str, name: str, token: str) -> None:
    """Run a worker until the coordinator shuts it down.

    `coordinator` is the HTTP address HOST:PORT from which the control address is learned when that is not given.
    """
    kept = keep_freed_memory()
    pa.set_memory_pool(pa.system_memory_pool())  # what arrow frees is then kept with the rest
    opened = open_device(parse_device(device))
    log.info("device %s; freed memory: %s", opened.spec, kept)
    torch.set_num_interop_threads(1)
    control = control_address or find_control_address(coordinator or "", CONNECT_DEADLINE_S)
    host = local_host_towards(control)
    if host == "127.0.0.1":
        use_loopback()
    incarnation = time.time_ns()  # grows from process to process, and fits 63 bits
    register = Register("worker", token, incarnation, "", str(opened.spec), socket.gethostname(), name)
    channel = NodeChannel(control, register)
    try:
        welcome = channel.connect(CONNECT_DEADLINE_S)
        Worker(channel, WorkerIdentity(welcome.node, incarnation, token, host, opened)).run()
    finally:
        channel.close()
