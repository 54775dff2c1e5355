"""A CUDA card: what torch and, where it is installed, NVIDIA's management library say of it.

`CudaDriver` is all that is used of both, so that tests can take the same path on the CPU.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import torch

from dense_workers.device import Pace
from dense_workers.links import Links
from dense_workers.nvml import read_sensors
from dense_workers.waiting import HostClock
from geartrain.device_spec import DeviceSpec
from geartrain.errors import ConfigError, DeviceMemoryError
from geartrain.wire.messages import DeviceFacts

BF16_CAPABILITY = 8
"""Compute capability (major) from which NVIDIA cards have bf16, and tf32, in hardware: Ampere."""
FP16_CAPABILITY = 7
"""From Volta on fp16 has tensor cores; before, it is no gain."""


_MEMORY_RAN_OUT = re.compile(r"(CUDA|HIP) error: out of memory|_STATUS_ALLOC_FAILED")


class CudaDriver(Protocol):
    """One card."""

    @property
    def torch_device(self) -> torch.device:
        """Where its tensors lie."""

    @property
    def name(self) -> str:
        """The name of its model, as the driver gives it."""

    @property
    def vendor(self) -> str:
        """nvidia or amd: whose collectives it can take part in."""

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability."""

    @property
    def memory_bytes(self) -> int:
        """All memory of the card."""

    def synchronize(self) -> None:
        """Wait until all that was launched is computed."""

    def forget_peak(self) -> None:
        """Let `peak_bytes` begin anew."""

    def peak_bytes(self) -> int:
        """The most memory that torch had in use since `forget_peak`."""

    def sensors(self) -> dict[str, Any]:
        """Clocks, temperature and the like, or why there are none."""


class TorchCudaDriver:
    """The card `index` of those that torch sees."""

    def __init__(self, index: int) -> None:
        self.torch_device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        self.name: str = properties.name
        self.vendor = "amd" if torch.version.hip else "nvidia"
        self.capability: tuple[int, int] = (properties.major, properties.minor)
        self.memory_bytes: int = properties.total_memory
        self._uuid = f"GPU-{properties.uuid}"

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def forget_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.torch_device)

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self.torch_device)

    def sensors(self) -> dict[str, Any]:
        # By the card's own id: NVML counts all cards of the host, torch those that CUDA_VISIBLE_DEVICES leaves.
        return read_sensors(self._uuid)


class CudaDevice:
    """A card that computes as fast as it does."""

    def __init__(self, spec: DeviceSpec, driver: CudaDriver) -> None:
        self.spec = spec
        self.torch_device = driver.torch_device
        self.links = Links(None, HostClock())
        self.max_samples: int | None = None
        self._driver = driver
        self._worker = ""
        self._step_samples: int | None = None

    def facts(self) -> DeviceFacts:
        driver = self._driver
        return DeviceFacts(
            model=driver.name,
            vendor=driver.vendor,
            emulated=False,
            precisions=_precisions(driver),
            memory_bytes=driver.memory_bytes,
            sensors={
                "compute_capability": "{}.{}".format(*driver.capability),
                "tf32": driver.vendor == "nvidia" and driver.capability[0] >= BF16_CAPABILITY,
                **driver.sensors(),
            },
        )

    def begin_job(self, worker: str) -> None:
        self._worker = worker
        self._step_samples = None

    def begin_training(self) -> None:
        pass

    def begin_step(self, num_samples: int, num_tokens: int) -> Pace:
        self._step_samples = num_samples
        return self

    def finish(self) -> bool:
        """Kernels run on after their launch: the step is over when the card has nothing left to do."""
        self._driver.synchronize()
        self._step_samples = None
        return False

    def check_fits(self, num_samples: int) -> None:
        """Nothing is known beforehand: torch raises when memory runs out."""

    def memory_error(self, error: Exception) -> DeviceMemoryError | None:
        """Of torch's allocator, or of the driver and the libraries, which allocate beside it."""
        said = str(error).partition("\n")[0]
        if not isinstance(error, torch.OutOfMemoryError) and not (
            isinstance(error, RuntimeError) and _MEMORY_RAN_OUT.search(said)
        ):
            return None
        size = self._step_samples
        what = "what the job keeps or scores on it" if size is None else f"a step of {size} samples"
        advice = "" if size is None else "; a smaller training.batch_size, or more workers, would make it smaller"
        memory_bytes = self._driver.memory_bytes
        return DeviceMemoryError(
            f"worker {self._worker} on {self.spec}: {what} does not fit its memory of {memory_bytes / 2**30:.1f} GiB"
            f"{advice} ({said})",
            device=str(self.spec),
            num_samples=size,
            max_samples=None,
            memory_bytes=memory_bytes,
        )

    def synchronize(self) -> None:
        self._driver.synchronize()

    def forget_peak(self) -> None:
        self._driver.forget_peak()

    def peak_bytes(self) -> int | None:
        return self._driver.peak_bytes()


def open_cuda(spec: DeviceSpec) -> CudaDevice:
    """The card that `spec` names; raises as `check_present`."""
    check_present(spec)
    return CudaDevice(spec, TorchCudaDriver(spec.index))


def check_present(spec: DeviceSpec) -> None:
    """Raises `ConfigError` if torch sees no such card. The card itself is left alone."""
    num_cards = torch.cuda.device_count()
    if spec.index >= num_cards:
        raise ConfigError(
            f"--device {spec}: torch {torch.__version__} sees {num_cards} CUDA devices here",
            field="--device",
            value=str(spec),
            expected=f"cuda:N with N below {num_cards}" if num_cards else "a machine, and a torch, with CUDA",
        )


def _precisions(driver: CudaDriver) -> list[str]:
    """What the card computes in hardware. AMD's cards that torch supports have all three."""
    major = driver.capability[0]
    if driver.vendor != "nvidia":
        return ["fp32", "bf16", "fp16"]
    return ["fp32", *(["bf16"] if major >= BF16_CAPABILITY else []), *(["fp16"] if major >= FP16_CAPABILITY else [])]
