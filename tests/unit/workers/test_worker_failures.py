"""What a worker tells the coordinator when a job fails on it, whatever was raised."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_cuda_device import OUT_OF_MEMORY, DriverDouble

from dense_workers import __main__ as worker_process
from dense_workers.__main__ import Worker
from dense_workers.cuda import CudaDevice
from dense_workers.trainer import WorkerIdentity
from geartrain.device_spec import parse_device
from geartrain.errors import ConfigError
from geartrain.wire.messages import NodeFailed, OpenJob, Probe, Route, Shutdown

OPEN = OpenJob(3, "job-1", {}, {}, [], Route(0, [], [], []), 0)
PROBE = Probe(3, "job-1", 20, 0, 64, "fp32")


class ScriptedChannel:
    """A coordinator that says what it has to say and then stops."""

    def __init__(self, *messages: Any) -> None:
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for message in (*messages, Shutdown("the test is over")):
            self._messages.put(message)
        self.sent: list[Any] = []

    def receive(self, timeout_s: float) -> Any:
        return self._messages.get(timeout=timeout_s)

    def send(self, message: Any) -> None:
        self.sent.append(message)


def failures(
    monkeypatch: pytest.MonkeyPatch, opening: Callable[[], None], probing: Callable[[], None]
) -> list[dict[str, Any]]:
    """The errors that a worker on a card reports when its trainer does this."""
    device = CudaDevice(parse_device("cuda:0"), DriverDouble())

    class ScriptedTrainer:
        term, job = OPEN.term, OPEN.job

        def __init__(self, *arguments: Any) -> None:
            device.begin_job("w0")
            opening()

        def announce(self) -> None: ...

        def probe(self, message: Probe) -> None:
            device.begin_step(message.batch_size, 0)
            probing()

        def close(self) -> None: ...

    monkeypatch.setattr(worker_process, "JobTrainer", ScriptedTrainer)
    channel = ScriptedChannel(OPEN, PROBE, PROBE)
    Worker(channel, WorkerIdentity("w0", 1, "token", "127.0.0.1", device)).run()
    assert all(isinstance(one, NodeFailed) and (one.term, one.job) == (3, "job-1") for one in channel.sent)
    return [one.error for one in channel.sent]


def nothing() -> None: ...


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_a_step_that_does_not_fit_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    (error,) = failures(monkeypatch, nothing, raising(torch.OutOfMemoryError(OUT_OF_MEMORY)))
    assert (error["code"], error["device"], error["num_samples"]) == ("device_memory", "cuda:0", 64)


def test_a_model_that_does_not_fit_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    (error,) = failures(monkeypatch, raising(torch.OutOfMemoryError(OUT_OF_MEMORY)), nothing)
    assert (error["code"], error["num_samples"]) == ("device_memory", None)


def test_errors_with_facts_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    (error,) = failures(monkeypatch, nothing, raising(ConfigError("wrong", field="training.precision")))
    assert error == {"code": "config_invalid", "message": "wrong", "field": "training.precision"}


@pytest.mark.parametrize("opens", [True, False])
def test_errors_that_nobody_expected_are_told_with_the_workers_name(
    monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    broken = raising(RuntimeError("shapes differ"))
    (error,) = failures(monkeypatch, nothing if opens else broken, broken)
    assert error == {"code": "internal", "message": "worker w0: RuntimeError: shapes differ"}
