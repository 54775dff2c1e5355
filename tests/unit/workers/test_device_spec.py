"""Device names: what is accepted, what is refused and how, and that neither torch nor a card is needed to tell."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.device_spec import DeviceSpec, EmulatedCard, parse_device
from geartrain.errors import ConfigError


def test_names_that_are_devices() -> None:
    assert parse_device("cpu") == DeviceSpec("cpu", 0)
    assert parse_device("cuda:3") == DeviceSpec("cuda", 3)
    assert [str(parse_device(name)) for name in ("cpu", "cuda:0", "cuda:12")] == ["cpu", "cuda:0", "cuda:12"]


@pytest.mark.parametrize(
    "spec", ["", "CPU", "cpu:1", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cuda:1\n", "tpu:0", "cuda:99999"]
)
def test_names_that_are_not(spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_device(spec)
    expected = "cpu, cuda:N or emulate:samples_per_s=N,..."
    assert caught.value.facts == {"field": "--device", "value": spec, "expected": expected}


def test_all_that_can_be_said_of_a_card() -> None:
    spec = parse_device(
        "emulate:name=A100-80GB,samples_per_s=3e3,tokens_per_s=60000,bandwidth_mb_s=.5,jitter=0.05,throttle_at_s=60,"
        "throttle_to=0.5,memory_mb=16000,sample_kb=3,precisions=bf16+fp32,vendor=acme"
    )
    card = EmulatedCard(
        "A100-80GB", 3000.0, 60000.0, 0.5, 0.05, 60.0, 0.5, 16000.0, 3.0, ("fp32", "bf16"), "acme"
    )  # fmt: skip
    assert spec == DeviceSpec("emulate", 0, card)
    assert spec.label == "emulate:A100-80GB"
    assert card.max_samples == 5_333_333


def test_a_card_without_a_name_is_known_by_its_speed() -> None:
    spec = parse_device("emulate:samples_per_s=3000")
    assert (spec.label, str(spec)) == ("emulate:3000", "emulate:name=3000,samples_per_s=3000")


def test_equal_cards_are_written_alike() -> None:
    ways = ("emulate:name=V,samples_per_s=3000", "emulate:samples_per_s=3e3,name=V,jitter=0,precisions=fp32")
    assert {str(parse_device(way)) for way in ways} == {"emulate:name=V,samples_per_s=3000"}


@pytest.mark.parametrize(
    ("settings", "setting", "value", "expected"),
    [
        ("", "samples_per_s", None, "how fast the card is"),
        ("name=V", "samples_per_s", None, "how fast the card is"),
        ("samples_per_s=0", "samples_per_s", "0", "a number from 0.001"),
        ("samples_per_s=-3", "samples_per_s", "-3", "a number from 0.001"),
        ("samples_per_s=nan", "samples_per_s", "nan", "a number from 0.001"),
        ("samples_per_s=inf", "samples_per_s", "inf", "a number from 0.001"),
        ("samples_per_s=1e999", "samples_per_s", "1e999", "a number from 0.001"),
        ("samples_per_s=3_000", "samples_per_s", "3_000", "a number from 0.001"),
        ("samples_per_s= 3", "samples_per_s", " 3", "a number from 0.001"),
        ("samples_per_s=", "samples_per_s", "samples_per_s=", "samples_per_s=VALUE"),
        ("samples_per_s", "samples_per_s", "samples_per_s", "samples_per_s=VALUE"),
        ("samples_per_s=3,", "", "", "one of name, samples_per_s"),
        ("samples_per_s=3,speed=2", "speed", "speed=2", "one of name, samples_per_s"),
        ("samples_per_s=3,samples_per_s=4", "samples_per_s", "4", "one value, not two"),
        ("samples_per_s=3,tokens_per_s=0", "tokens_per_s", "0", "a number from 0.001"),
        ("samples_per_s=3,bandwidth_mb_s=0", "bandwidth_mb_s", "0", "a number from 1e-06"),
        ("samples_per_s=3,jitter=1", "jitter", "1", "a number from 0 to 0.99"),
        ("samples_per_s=3,throttle_at_s=1", "throttle_to", None, "beside throttle_at_s"),
        ("samples_per_s=3,throttle_to=0.5", "throttle_at_s", None, "beside throttle_to"),
        ("samples_per_s=3,throttle_at_s=1,throttle_to=1.5", "throttle_to", "1.5", "a number from 1e-06 to 1"),
        ("samples_per_s=3,memory_mb=10", "sample_kb", None, "beside memory_mb"),
        ("samples_per_s=3,memory_mb=1,sample_kb=1001", "memory_mb", "1", "room for one sample"),
        ("samples_per_s=3,precisions=fp16", "precisions", "fp16", "fp32, alone or with others"),
        ("samples_per_s=3,precisions=fp32+fp8", "precisions", "fp32+fp8", "fp32, alone or with others"),
        ("samples_per_s=3,precisions=fp32+fp32", "precisions", "fp32+fp32", "fp32, alone or with others"),
        ("samples_per_s=3,name=-x", "name", "-x", "letters, digits"),
        ("samples_per_s=3,name=a:b", "name", "a:b", "letters, digits"),
    ],
)
def test_a_wrong_setting_is_named(settings: str, setting: str, value: str | None, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_device(f"emulate:{settings}")
    facts = caught.value.facts
    assert (facts["field"], facts["setting"], facts["value"]) == ("--device", setting, value)
    assert expected in facts["expected"]
    assert "--device" in caught.value.message
    assert expected in caught.value.message


numbers = st.floats(1e-3, 1e12)


@given(
    st.builds(
        EmulatedCard,
        name=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_ .+/-]{0,39}", fullmatch=True),
        samples_per_s=numbers,
        tokens_per_s=st.none() | numbers,
        bandwidth_mb_s=st.none() | st.floats(1e-6, 1e9),
        jitter=st.floats(0, 0.99),
        vendor=st.sampled_from(["emulated", "nvidia", "amd"]),
        precisions=st.sampled_from([("fp32",), ("fp32", "fp16"), ("fp32", "bf16", "fp16")]),
    )
)
def test_what_is_written_is_read_back(card: EmulatedCard) -> None:
    spec = DeviceSpec("emulate", 0, card)
    assert parse_device(str(spec)) == spec


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_time_of_a_step_is_that_of_its_samples_and_its_tokens(num_samples: int, num_tokens: int) -> None:
    plain = EmulatedCard("V", 2000.0)
    sequences = EmulatedCard("V", 2000.0, tokens_per_s=500.0)
    assert plain.step_s(num_samples, num_tokens) == num_samples / 2000
    assert sequences.step_s(num_samples, num_tokens) == pytest.approx(num_samples / 2000 + num_tokens / 500)


def test_names_are_told_without_torch() -> None:
    program = (
        "import sys, geartrain.device_spec as d, geartrain.commands.options as o;"
        "d.parse_device('cuda:0'); o.resolve_devices(None, ('emulate:samples_per_s=1', 'cpu'));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
