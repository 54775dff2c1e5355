"""What `--device` names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geartrain.errors import ConfigError

if TYPE_CHECKING:
    import torch

_EXPECTED = "cpu or cuda:N"


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


def _wrong(spec: str, why: str) -> ConfigError:
    return ConfigError(
        f"--device {spec}: {why}; expected {_EXPECTED}", field="--device", value=spec, expected=_EXPECTED
    )
