"""What a worker measures of itself, on a device and servers whose every second is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scripted_device import Script, ScriptedClient, ScriptedDevice, ScriptedRunner

from coordinator.cost_model import StepTiming, fit_cost_model
from dense_workers.prefetch import BatchPlanner
from dense_workers.probe_batches import ProbeBatches
from dense_workers.prober import Prober
from geartrain.data.batch import Batch
from geartrain.errors import ConfigError, DeviceMemoryError
from geartrain.types import NUM_SHARDS
from geartrain.wire.framing import decode_from_node, encode
from geartrain.wire.messages import Probe, Probed, ProbeReport, Route

NUM_ROWS = 3000
NUM_PROBES = 20


def batches(num_rows: int = NUM_ROWS, longest: int = 12) -> ProbeBatches:
    """Rows of a user each and a history of 0 to `longest` items."""
    lengths = np.concatenate([np.ones(num_rows, np.int64), np.arange(num_rows) * 7 % (longest + 1)])
    pool = Batch(
        labels=np.zeros(num_rows, np.float32),
        numeric=np.zeros((num_rows, 0), np.float32),
        keys=np.arange(lengths.sum(), dtype=np.uint64),
        bag_offsets=np.cumsum([0, *lengths], dtype=np.int32),
        group_ids=None,
    )
    schema = SimpleNamespace(slot_tables=np.array([0, 1], dtype=np.int64), table_names=("user", "item"))
    planner = BatchPlanner(schema, Route(1, ["s0", "s1"], ["a", "b"], [0] * NUM_SHARDS))
    return ProbeBatches(pool, np.array([1], dtype=np.int64), planner)


def probed(
    script: Script, batch_size: int = 1000, precision: str = "auto", smallest: int = 1, longest: int = 12
) -> ProbeReport:
    device, runner, client = ScriptedDevice(script), ScriptedRunner(script), ScriptedClient(script)
    rows = batches(longest=longest)
    prober = Prober("w3", device, runner, rows, client, smallest, script.clock_s)
    report = prober.run(Probe(1, "job", NUM_PROBES, 7, batch_size, precision))
    assert script.versions == {7}
    assert decode_from_node([encode(Probed("w3", 1, "job", report))]) == Probed("w3", 1, "job", report)
    return report


def test_steps_of_three_sizes_are_timed_often_enough_and_fit_the_devices_cost() -> None:
    script = Script(sample_s=2e-4, token_s=5e-5, fixed_s=3e-3)
    report = probed(script)
    sizes = sorted({one.num_samples for one in report.timings})
    assert len(sizes) == 3 and sizes[-1] <= 1000
    assert all(sum(one.num_samples == size for one in report.timings) == NUM_PROBES for size in sizes)
    assert max(one.seconds for one in report.timings) < 0.15
    for size in sizes:  # what tokens cost does not show where they are a multiple of samples
        tokens = [one.num_tokens for one in report.timings if one.num_samples == size]
        assert max(tokens) > 2 * min(tokens)
    cost, num_outliers = fit_cost_model([StepTiming(*one[:3]) for one in map(astuple, report.timings)])
    row_s = 56 / 1e9  # 24 bytes of a row down, 32 up
    assert num_outliers == 0
    assert cost.sample_s == pytest.approx(2e-4 + row_s, rel=0.02)
    assert cost.token_s == pytest.approx(5e-5 + row_s, rel=0.05)
    assert cost.fixed_s == pytest.approx(3e-3 + 2e-4, rel=0.1)
    assert report.seconds == script.now_s < 10.0


def astuple(one: object) -> tuple[int, int, float]:
    return one.num_samples, one.num_tokens, one.seconds  # type: ignore[attr-defined]


def test_without_tokens_no_row_is_chosen_by_them() -> None:
    report = probed(Script(), longest=0)
    assert {one.num_tokens for one in report.timings} == {0}


def test_the_part_of_transfers_is_told_apart() -> None:
    report = probed(Script(sample_s=1e-4, mb_per_s=1.0, round_trip_s=1e-3))
    for one in report.timings:
        assert one.transfer_s == pytest.approx(2e-3 + 56e-6 * (one.num_samples + one.num_tokens))
        assert one.seconds - one.transfer_s == pytest.approx(1e-4 * one.num_samples)


def test_ways_to_the_servers_are_measured_apart_from_the_round_trip() -> None:
    report = probed(Script(mb_per_s=50.0, round_trip_s=2e-3))
    assert report.round_trip_ms == {"s0": pytest.approx(2.0), "s1": pytest.approx(2.0)}
    assert report.push_mb_per_s == {"s0": pytest.approx(50.0), "s1": pytest.approx(50.0)}
    assert report.pull_mb_per_s == {"s0": pytest.approx(50.0), "s1": 0.0}  # s1 owns none of the rows
    assert report.memory_gb_per_s == pytest.approx(2**27 / 1e9 / 0.001)


def test_a_slow_way_is_measured_once() -> None:
    script = Script(mb_per_s=5.0)
    device, runner, client = ScriptedDevice(script), ScriptedRunner(script), ScriptedClient(script)
    prober = Prober("w3", device, runner, batches(), client, 1, script.clock_s)
    report = prober.run(Probe(1, "job", NUM_PROBES, 7, 64, "fp32"))
    assert report.push_mb_per_s["s1"] == pytest.approx(5.0)
    assert client.echoed[1] == 1_000_000  # that server gets nothing of steps


def test_no_step_is_larger_than_the_batch_or_than_what_is_there_to_read() -> None:
    small = Script(sample_s=1e-6)
    assert max(one.num_samples for one in probed(small, batch_size=37).timings) == 37
    assert max(num_samples for _, num_samples in small.steps) == 37
    large = Script(sample_s=1e-6)
    probed(large, batch_size=10 * NUM_ROWS)
    assert max(num_samples for _, num_samples in large.steps) == NUM_ROWS


def test_a_device_of_little_memory_is_not_asked_for_more() -> None:
    script = Script(max_samples=100, sample_bytes=3000)  # larger steps fail the scripted device
    report = probed(script)
    assert report.max_samples == 100
    assert max(one.num_samples for one in report.timings) == 100
    assert report.bytes_per_sample == pytest.approx(3000)
    assert probed(Script()).max_samples is None
    assert probed(Script()).bytes_per_sample == 0.0


def test_a_device_on_which_nothing_fits_is_named() -> None:
    with pytest.raises(DeviceMemoryError, match=r"worker w3 on emulate:V100: a step of 2 samples does not fit"):
        probed(Script(max_samples=1), smallest=2)


def test_on_a_card_memory_is_found_out_by_running_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    device, runner = ScriptedDevice(script), ScriptedRunner(script)
    device.torch_device = torch.device("cuda", 0)
    compute = runner.compute

    def bounded(planned: Any, rows: Any, step_seed: int) -> Any:
        if planned.batch.num_samples > 700:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(planned, rows, step_seed)

    monkeypatch.setattr(runner, "compute", bounded)
    prober = Prober("w3", device, runner, batches(), ScriptedClient(script), 1, script.clock_s)
    assert prober._max_samples(1000) == 700
    assert prober._max_samples(600) is None


def test_batch_norm_is_never_probed_with_one_sample() -> None:
    script = Script(sample_s=1.0)
    report = probed(script, smallest=2)
    assert {num_samples for _, num_samples in script.steps} == {2, 16}
    assert len(report.timings) == NUM_PROBES


@pytest.mark.parametrize(
    ("speedup", "drift", "expected"),
    [
        ({"bf16": 2.0, "fp16": 3.0}, {"bf16": 0.01, "fp16": 0.02}, "fp16"),
        ({"bf16": 2.0, "fp16": 3.0}, {"bf16": 0.01, "fp16": 0.06}, "bf16"),
        ({"bf16": 1.05, "fp16": 0.3}, {}, "fp32"),
    ],
)
def test_auto_takes_the_fastest_precision_that_is_near_enough(
    speedup: dict[str, float], drift: dict[str, float], expected: str
) -> None:
    script = Script(speedup=speedup, drift=drift, precisions=("fp32", "bf16", "fp16"))
    report = probed(script)
    assert (report.precision, script.precision) == (expected, expected)
    assert report.numeric_drift == pytest.approx(drift.get(expected, 0.0), rel=1e-4)
    expected_speeds = {name: 10_000.0 * speedup.get(name, 1.0) for name in ("fp32", "bf16", "fp16")}
    assert report.precision_samples_per_s == pytest.approx(expected_speeds)
    largest = max(report.timings, key=lambda one: one.num_samples)
    assert largest.seconds - largest.transfer_s == pytest.approx(
        largest.num_samples * 1e-4 / speedup.get(expected, 1.0)
    )


def test_a_precision_that_is_named_is_taken_also_where_it_is_slow() -> None:
    script = Script(speedup={"bf16": 0.5}, drift={"bf16": 0.2}, precisions=("fp32", "bf16"))
    report = probed(script, precision="bf16")
    assert (report.precision, script.precision) == ("bf16", "bf16")
    assert report.numeric_drift == pytest.approx(0.2)
    assert report.precision_samples_per_s == pytest.approx({"fp32": 10_000.0, "bf16": 5000.0})
    only = Script(precisions=("fp32", "bf16"), speedup={"bf16": 9.0})
    fp32 = probed(only, precision="fp32")
    assert (fp32.precision, fp32.numeric_drift, {name for name, _ in only.steps}) == ("fp32", 0.0, {"fp32"})
    assert fp32.precision_samples_per_s == pytest.approx({"fp32": 10_000.0})


def test_a_precision_that_the_device_lacks_is_refused_before_any_step() -> None:
    script = Script(precisions=("fp32", "bf16"))
    with pytest.raises(ConfigError, match="worker w3 on emulate:V100 cannot compute in fp16"):
        probed(script, precision="fp16")
    assert script.steps == []
