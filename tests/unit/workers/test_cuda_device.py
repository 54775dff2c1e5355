"""The path of CUDA cards, with a driver that needs none; and what the sensors say without NVIDIA's library."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dense_workers.cuda import CudaDevice
from dense_workers.nvml import read_sensors
from geartrain.device_spec import parse_device
from geartrain.errors import GeartrainError


class DriverDouble:
    """A card on the CPU."""

    def __init__(self, capability: tuple[int, int] = (9, 0), vendor: str = "nvidia") -> None:
        self.torch_device = torch.device("cpu")
        self.name, self.vendor, self.capability, self.memory_bytes = "NVIDIA H200", vendor, capability, 141 << 30
        self.calls: list[str] = []

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def forget_peak(self) -> None:
        self.calls.append("forget_peak")

    def peak_bytes(self) -> int:
        return 12345

    def sensors(self) -> dict[str, Any]:
        return {"nvml": "ok", "sm_clock_mhz": 1980}


def test_a_card_tells_what_it_is() -> None:
    facts = CudaDevice(parse_device("cuda:0"), DriverDouble()).facts()
    assert (facts.model, facts.vendor, facts.emulated, facts.memory_bytes) == (
        "NVIDIA H200",
        "nvidia",
        False,
        141 << 30,
    )
    assert facts.precisions == ["fp32", "bf16", "fp16"]
    assert facts.sensors == {"compute_capability": "9.0", "tf32": True, "nvml": "ok", "sm_clock_mhz": 1980}


@pytest.mark.parametrize(
    ("capability", "vendor", "precisions", "tf32"),
    [
        ((6, 1), "nvidia", ["fp32"], False),
        ((7, 0), "nvidia", ["fp32", "fp16"], False),
        ((8, 6), "nvidia", ["fp32", "bf16", "fp16"], True),
        ((9, 4), "amd", ["fp32", "bf16", "fp16"], False),
    ],
)
def test_precisions_are_those_of_its_generation(
    capability: tuple[int, int], vendor: str, precisions: list[str], tf32: bool
) -> None:
    facts = CudaDevice(parse_device("cuda:0"), DriverDouble(capability, vendor)).facts()
    assert (facts.precisions, facts.sensors["tf32"]) == (precisions, tf32)


def test_a_step_ends_when_its_kernels_have() -> None:
    driver = DriverDouble()
    device = CudaDevice(parse_device("cuda:0"), driver)
    device.begin_job("w0")
    device.begin_training()
    device.check_fits(10**9)
    pace = device.begin_step(100, 0)
    assert driver.calls == []
    assert pace.finish() is False, "a real card is what it is"
    assert driver.calls == ["synchronize"]
    device.forget_peak()
    assert driver.calls == ["synchronize", "forget_peak"]
    assert device.peak_bytes() == 12345
    assert device.links.upload(10**12) == 0.0


OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(OUT_OF_MEMORY),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("HIP error: out of memory"),
    ],
    ids=["torch", "library", "driver", "amd"],
)
def test_a_step_that_memory_cannot_hold_is_told_as_on_any_device(error: Exception) -> None:
    device = CudaDevice(parse_device("cuda:0"), DriverDouble())
    device.begin_job("w3")
    device.begin_step(9000, 0)
    found = device.memory_error(error)
    assert found is not None
    assert found.message.startswith(
        "worker w3 on cuda:0: a step of 9000 samples does not fit its memory of 141.0 GiB; a smaller training.batch_"
    )
    assert found.message.endswith(f"({str(error).splitlines()[0]})")
    facts = {"device": "cuda:0", "num_samples": 9000, "max_samples": None, "memory_bytes": 141 << 30}
    assert (found.code, found.facts) == ("device_memory", facts)
    assert GeartrainError.from_dict(json.loads(json.dumps(found.to_dict()))).facts == facts


def test_memory_that_runs_out_between_steps_is_no_steps_fault() -> None:
    device = CudaDevice(parse_device("cuda:1"), DriverDouble())
    device.begin_job("w0")
    device.begin_step(9000, 0).finish()
    found = device.memory_error(torch.OutOfMemoryError(OUT_OF_MEMORY))
    assert found is not None and found.facts["num_samples"] is None
    assert "what the job keeps or scores on it does not fit" in found.message


@pytest.mark.parametrize(
    "error", [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("CUDA error: out of memory")]
)
def test_another_error_is_another_error(error: Exception) -> None:
    assert CudaDevice(parse_device("cuda:0"), DriverDouble()).memory_error(error) is None


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


def nvml_double(**changes: Any) -> SimpleNamespace:
    """As much of `pynvml` as is used, for one card."""

    def unsupported(card: str) -> int:
        raise NVMLError_NotSupported

    def handle(uuid: str) -> str:
        if uuid != "GPU-1":
            raise NVMLError("not found")
        return "card"

    functions = {
        "NVMLError": NVMLError,
        "NVMLError_NotSupported": NVMLError_NotSupported,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlClocksThrottleReasonSwPowerCap": 4,
        "nvmlClocksThrottleReasonHwThermalSlowdown": 64,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": handle,
        "nvmlSystemGetDriverVersion": lambda: "555.42",
        "nvmlDeviceGetClockInfo": lambda card, kind: {1: 1410, 2: 2619}[kind],
        "nvmlDeviceGetMaxClockInfo": lambda card, kind: 1980,
        "nvmlDeviceGetTemperature": lambda card, kind: 61,
        "nvmlDeviceGetPowerUsage": unsupported,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda card: 64 + 4 + 1,
    }
    return SimpleNamespace(**{**functions, **changes})


def test_sensors_in_units_and_reasons_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml_double())
    assert read_sensors("GPU-1") == {
        "nvml": "ok",
        "driver": "555.42",
        "sm_clock_mhz": 1410,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 2619,
        "temperature_c": 61,
        "throttle_reasons": ["power cap", "temperature (hardware)"],
    }


def test_sensors_say_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml_double())
    assert read_sensors("GPU-2") == {"nvml": "does not know GPU-2: not found"}

    def no_driver() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", nvml_double(nvmlInit=no_driver))
    assert read_sensors("GPU-1") == {"nvml": "not available: Driver Not Loaded"}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_sensors("GPU-1") == {"nvml": "not installed: pip install nvidia-ml-py"}
