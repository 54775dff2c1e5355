"""What a worker computes on: one protocol for the CPU, CUDA cards and emulated cards."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Protocol

import torch

from dense_workers.links import Links
from dense_workers.waiting import HostClock
from geartrain.device_spec import DeviceSpec
from geartrain.errors import DeviceMemoryError
from geartrain.wire.messages import DeviceFacts


class Pace(Protocol):
    """A step that the device has begun."""

    def finish(self) -> bool:
        """Return when the device has done what it was given since `Device.begin_step`, and would be done by its speed.

        True where an emulated card could not be emulated: this host needed longer for the step than the card would.
        """


class Device(Protocol):
    """A device of one worker. Used by one thread, but for `links`."""

    @property
    def spec(self) -> DeviceSpec:
        """How the command line names it."""

    @property
    def torch_device(self) -> torch.device:
        """Where the model lies."""

    @property
    def links(self) -> Links:
        """Its way to the servers and to the other workers."""

    @property
    def max_samples(self) -> int | None:
        """The largest step that fits its memory, where that is known beforehand."""

    def facts(self) -> DeviceFacts:
        """What it is; what its sensors say is of now."""

    def begin_job(self, worker: str) -> None:
        """A job begins on it, as `worker`: what it did for the last one is forgotten."""

    def begin_training(self) -> None:
        """Training steps begin now; only the first call of a job counts."""

    def begin_step(self, num_samples: int, num_tokens: int) -> Pace:
        """Begin to compute a step: all that it needs is there."""

    def check_fits(self, num_samples: int) -> None:
        """Raises `DeviceMemoryError` for a step of `num_samples` that is known to be too large for its memory."""

    def memory_error(self, error: Exception) -> DeviceMemoryError | None:
        """What an exception means that was raised by computing on it, if that is that its memory has run out."""

    def synchronize(self) -> None:
        """Wait until all that it was given is computed."""

    def forget_peak(self) -> None:
        """Let `peak_bytes` begin anew."""

    def peak_bytes(self) -> int | None:
        """The most memory in use since `forget_peak`; None where nobody counts."""


class HostDevice:
    """The CPU: it computes as fast as it does, and memory is the host's."""

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec
        self.torch_device = torch.device("cpu")
        self.links = Links(None, HostClock())
        self.max_samples: int | None = None

    def facts(self) -> DeviceFacts:
        return DeviceFacts(model=_cpu_model(), vendor="cpu", emulated=False, precisions=["fp32", "bf16"])

    def begin_job(self, worker: str) -> None:
        pass

    def begin_training(self) -> None:
        pass

    def begin_step(self, num_samples: int, num_tokens: int) -> Pace:
        return self

    def finish(self) -> bool:
        """The host computes in the calling thread: when that asks, it is done."""
        return False

    def check_fits(self, num_samples: int) -> None:
        pass

    def memory_error(self, error: Exception) -> DeviceMemoryError | None:
        return None

    def synchronize(self) -> None:
        pass

    def forget_peak(self) -> None:
        pass

    def peak_bytes(self) -> int | None:
        return None


def open_device(spec: DeviceSpec) -> Device:
    """The device of `spec`; ConfigError if this machine, or the installed torch, has no such card."""
    if spec.card is not None:
        from dense_workers.emulation import EmulatedDevice

        return EmulatedDevice(spec, spec.card, HostClock())
    if spec.kind == "cuda":
        from dense_workers.cuda import open_cuda

        return open_cuda(spec)
    return HostDevice(spec)


def _cpu_model() -> str:
    """What the kernel calls the CPU or, where it says nothing, its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()
