"""Device names: what is accepted, what is refused and how, and that torch is not needed to tell."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dense_workers.device import DeviceSpec, open_device, parse_device
from geartrain.errors import ConfigError


def test_names_that_are_devices():
    assert parse_device("cpu") == DeviceSpec("cpu", 0)
    assert parse_device("cuda:3") == DeviceSpec("cuda", 3)
    assert [str(parse_device(name)) for name in ("cpu", "cuda:0", "cuda:12")] == ["cpu", "cuda:0", "cuda:12"]


@pytest.mark.parametrize(
    "spec", ["", "CPU", "cpu:1", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "tpu:0", "cuda:99999"]
)
def test_names_that_are_not(spec):
    with pytest.raises(ConfigError) as caught:
        parse_device(spec)
    assert caught.value.facts == {"field": "--device", "value": spec, "expected": "cpu or cuda:N"}


def test_emulated_devices_are_refused_by_name():
    with pytest.raises(ConfigError, match="emulated devices come with unlike hardware"):
        parse_device("emulate:samples_per_s=3000")


def test_opening_a_device():
    assert open_device(DeviceSpec("cpu", 0)) == torch.device("cpu")
    absent = DeviceSpec("cuda", torch.cuda.device_count())
    with pytest.raises(ConfigError, match=r"sees \d+ CUDA devices"):
        open_device(absent)


def test_names_are_told_without_torch():
    program = "import sys, dense_workers.device as d; d.parse_device('cuda:0'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
