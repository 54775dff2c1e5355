"""Emulated cards, on a clock of the test: how long a step takes, whatever the host does meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from dense_workers.emulation import EmulatedDevice
from dense_workers.waiting import HostClock
from geartrain.device_spec import DeviceSpec, EmulatedCard
from geartrain.errors import DeviceMemoryError


def opened(clock: ManualClock, worker: str = "w0", **settings: Any) -> EmulatedDevice:
    card = EmulatedCard("V100", **{"samples_per_s": 1000.0, **settings})
    device = EmulatedDevice(DeviceSpec("emulate", card=card), card, clock)
    device.begin_job(worker)
    return device


def step(device: EmulatedDevice, clock: ManualClock, num_samples: int = 100, host_s: float = 0.0) -> tuple[float, bool]:
    """Seconds of a step for which the host computes `host_s`, and whether it was bound by the host."""
    begun_s = clock.time_s
    pace = device.begin_step(num_samples, 0)
    clock.work(host_s)
    host_bound = pace.finish()
    return clock.time_s - begun_s, host_bound


@given(st.integers(1, 10**5), st.integers(0, 10**6), st.floats(0, 500))
def test_a_step_takes_the_longer_of_the_card_and_the_host(num_samples: int, num_tokens: int, host_s: float) -> None:
    clock = ManualClock()
    device = opened(clock, tokens_per_s=5000.0)
    card_s = num_samples / 1000 + num_tokens / 5000
    begun_s = clock.time_s
    pace = device.begin_step(num_samples, num_tokens)
    clock.work(host_s)
    host_bound = pace.finish()
    assert clock.time_s - begun_s == pytest.approx(max(card_s, host_s))
    assert host_bound == (begun_s + host_s > begun_s + card_s)


def test_nothing_is_made_up_for_after_a_step_that_was_late() -> None:
    clock = ManualClock()
    device = opened(clock)
    assert step(device, clock, host_s=5.0) == (pytest.approx(5.0), True)
    assert step(device, clock, host_s=0.01) == (pytest.approx(0.1), False)
    clock.work(60.0)
    assert step(device, clock) == (pytest.approx(0.1), False)


def test_a_step_without_samples_takes_no_time_and_no_host_is_blamed() -> None:
    clock = ManualClock()
    device = opened(clock)
    assert step(device, clock, num_samples=0, host_s=0.2) == (pytest.approx(0.2), False)


def test_jitter_is_even_within_its_bounds_and_the_same_in_every_run() -> None:
    def seconds(worker: str) -> list[float]:
        clock = ManualClock()
        device = opened(clock, worker, jitter=0.2)
        return [step(device, clock)[0] for _ in range(2000)]

    times = seconds("w0")
    assert 0.08 <= min(times) < 0.0805
    assert 0.1195 < max(times) <= 0.12
    assert sum(times) / len(times) == pytest.approx(0.1, rel=0.01)
    assert times == seconds("w0")
    assert times != seconds("w1")


def test_a_new_job_draws_the_same_jitter_again() -> None:
    clock = ManualClock()
    device = opened(clock, jitter=0.5)
    first = [step(device, clock)[0] for _ in range(5)]
    device.begin_job("w0")
    assert [step(device, clock)[0] for _ in range(5)] == pytest.approx(first)


def test_a_card_throttles_after_seconds_of_training_not_of_probes() -> None:
    clock = ManualClock()
    device = opened(clock, throttle_at_s=10.0, throttle_to=0.5)
    clock.work(100.0)
    assert step(device, clock)[0] == pytest.approx(0.1), "a probe"
    device.begin_training()
    clock.work(9.9)
    device.begin_training()
    assert step(device, clock)[0] == pytest.approx(0.1)
    assert step(device, clock)[0] == pytest.approx(0.2)
    device.begin_job("w0")
    device.begin_training()
    assert step(device, clock)[0] == pytest.approx(0.1), "the next job finds it cool"


def test_memory_bounds_a_step() -> None:
    device = opened(ManualClock(), memory_mb=2.0, sample_kb=10.0)
    assert device.max_samples == 200
    device.check_fits(200)
    with pytest.raises(
        DeviceMemoryError, match="V100: a step of 201 samples does not fit its memory, 200 do"
    ) as caught:
        device.check_fits(201)
    assert caught.value.facts == {"device": str(device.spec), "num_samples": 201, "max_samples": 200}


def test_the_peak_is_that_of_the_largest_step() -> None:
    clock = ManualClock()
    device = opened(clock, memory_mb=2.0, sample_kb=10.0)
    for num_samples in (30, 50, 40):
        step(device, clock, num_samples)
    assert device.peak_bytes() == 500_000
    device.forget_peak()
    step(device, clock, 10)
    assert device.peak_bytes() == 100_000
    assert opened(clock).peak_bytes() is None


def test_without_a_limit_everything_fits() -> None:
    device = opened(ManualClock())
    assert device.max_samples is None
    device.check_fits(10**12)
    assert device.facts().memory_bytes is None


def test_the_clock_of_the_host_waits_long_enough_and_without_work() -> None:
    clock = HostClock()
    until_s = clock.now_s() + 0.05
    worked_s = time.thread_time()
    clock.wait_until(until_s)
    assert clock.now_s() >= until_s
    assert time.thread_time() - worked_s < 0.02
    clock.wait_until(until_s - 3600)
