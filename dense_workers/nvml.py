"""Sensors of NVIDIA cards, by the management library NVML. Its Python side, `nvidia-ml-py`, is optional."""

from __future__ import annotations

import importlib
from typing import Any


def read_sensors(uuid: str) -> dict[str, Any]:
    """Driver, clocks in MHz, temperature in C, power in W, what throttles the card with this id; `nvml` says "ok" or
    why nothing else is known."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return {"nvml": "not installed: pip install nvidia-ml-py"}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"nvml": f"not available: {error}"}
    try:
        return {"nvml": "ok", **_read(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))}
    except nvml.NVMLError as error:
        return {"nvml": f"does not know {uuid}: {error}"}
    finally:
        nvml.nvmlShutdown()


def _read(nvml: Any, card: Any) -> dict[str, Any]:
    """A sensor that this card does not have is left out."""
    sensors = {
        "driver": nvml.nvmlSystemGetDriverVersion,
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
        "sm_clock_max_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(card, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(card) / 1000,
        "throttle_reasons": lambda: _reasons(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card)),
    }
    values: dict[str, Any] = {}
    for name, read in sensors.items():
        try:
            values[name] = read()
        except nvml.NVMLError_NotSupported:
            continue
    return values


THROTTLE_REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "temperature (software)",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "temperature (hardware)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksThrottleReasonSyncBoost": "sync boost",
    "nvmlClocksThrottleReasonApplicationsClocksSetting": "clocks set by a person",
}
"""The bits of NVML that slow a card down, and what they mean. An idle card, which NVML lists too, is not throttled."""


def _reasons(nvml: Any, bits: int) -> list[str]:
    return [meaning for name, meaning in THROTTLE_REASONS.items() if bits & getattr(nvml, name, 0)]
