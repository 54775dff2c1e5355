"""What `--device` names, and how the process prepares itself for it."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geartrain.errors import ConfigError

if TYPE_CHECKING:
    import torch

_EXPECTED = "cpu or cuda:N"
_MALLOC_TRIM_THRESHOLD = -1  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
_MALLOC_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_BYTES = 32 << 20  # the most that glibc accepts
_TRIM_THRESHOLD_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device as the command line names it. `index` is 0 for the CPU."""

    kind: str
    index: int

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"


def parse_device(spec: str) -> DeviceSpec:
    """The device that `spec` (`cpu` or `cuda:N`) names, without a look at the hardware (torch is not imported).

    ConfigError for anything else, and for emulated devices, which this version does not have.
    """
    if spec == "cpu":
        return DeviceSpec("cpu", 0)
    if match := re.fullmatch(r"cuda:(\d{1,4})", spec):
        return DeviceSpec("cuda", int(match[1]))
    if spec.partition(":")[0] == "emulate":
        raise _wrong(spec, "emulated devices come with unlike hardware, this version has none of them")
    raise _wrong(spec, "no such kind of device")


def open_device(device: DeviceSpec) -> torch.device:
    """The torch device of `device`; ConfigError if this machine, or the installed torch, has no such card."""
    import torch

    if device.kind == "cuda":
        num_cards = torch.cuda.device_count()
        if device.index >= num_cards:
            raise _wrong(str(device), f"torch {torch.__version__} sees {num_cards} CUDA devices here")
    return torch.device(str(device))


def keep_freed_memory() -> str:
    """Let the C allocator keep what is freed, for the next step; says what was done.

    A step allocates and frees the same few large tensors. By default glibc gives such memory back to the system at once
    and faults it in again page by page, which costs 3 to 10% of a DeepFM step on a CPU.
    """
    if not sys.platform.startswith("linux"):
        return "unchanged: not Linux"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return "unchanged: this C library has no mallopt"
    done = mallopt(_MALLOC_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES) and mallopt(
        _MALLOC_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES
    )
    return f"up to {_TRIM_THRESHOLD_BYTES >> 20} MiB are kept" if done else "unchanged: mallopt refused"


def _wrong(spec: str, why: str) -> ConfigError:
    return ConfigError(
        f"--device {spec}: {why}; expected {_EXPECTED}", field="--device", value=spec, expected=_EXPECTED
    )
