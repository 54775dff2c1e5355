"""Opening devices: what the machine has and has not, and the CPU as a device."""

from __future__ import annotations

import pytest
import torch

from dense_workers.device import open_device
from dense_workers.emulation import EmulatedDevice
from geartrain.device_spec import DeviceSpec, parse_device
from geartrain.errors import ConfigError


def test_the_cpu_waits_for_nothing_and_knows_what_it_is() -> None:
    device = open_device(DeviceSpec("cpu"))
    assert device.torch_device == torch.device("cpu")
    facts = device.facts()
    assert (facts.vendor, facts.emulated, facts.memory_bytes) == ("cpu", False, None)
    assert facts.model
    device.check_fits(10**9)
    assert device.begin_step(10**9, 10**9).finish() is False
    assert device.links.exchange(10**15) == device.links.upload(10**15) == device.links.download(10**15) == 0.0
    assert device.peak_bytes() is None


def test_an_absent_card_is_refused_with_what_there_is() -> None:
    absent = DeviceSpec("cuda", torch.cuda.device_count())
    with pytest.raises(ConfigError, match=r"sees \d+ CUDA devices") as caught:
        open_device(absent)
    assert caught.value.facts["field"] == "--device"
    assert caught.value.facts["value"] == str(absent)


def test_an_emulated_card_computes_on_the_cpu_and_says_that_it_is_emulated() -> None:
    spec = parse_device("emulate:name=V100,samples_per_s=3000,memory_mb=2,vendor=acme,sample_kb=1,precisions=fp32+fp16")
    device = open_device(spec)
    assert isinstance(device, EmulatedDevice)
    assert device.torch_device == torch.device("cpu")
    facts = device.facts()
    assert (facts.model, facts.vendor, facts.emulated) == ("V100", "acme", True)
    assert (facts.precisions, facts.memory_bytes) == (["fp32", "fp16"], 2_000_000)
