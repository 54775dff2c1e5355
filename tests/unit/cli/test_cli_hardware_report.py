"""What the report says of unlike hardware."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from geartrain.hardware_report import hardware_rows, worker_table
from geartrain.report import render_report, render_running

PLAIN: dict[str, Any] = {
    "worker": "w0",
    "device": "cpu",
    "group": 0,
    "share": 1.0,
    "samples": 300000,
    "step_ms": {"p50": 41.25, "p99": 60.0},
    "wait_ms": {"p50": 0.0},
    "solo_samples_per_s": None,
}
EMULATED: dict[str, Any] = {
    **PLAIN,
    "worker": "w1",
    "device": "emulate:V100",
    "share": 0.25,
    "samples": 1234567,
    "busy_ms": {"p50": 39.96},
    "solo_samples_per_s": 2999.6,
    "emulated": True,
    "precision": "bf16",
    "numeric_drift": 0.0123,
    "host_bound_steps": 12,
}
HETEROGENEITY: dict[str, Any] = {
    "throughput_over_sum_of_solo": 0.964,
    "sum_of_solo_samples_per_s": 9000.4,
    "equal_shares_samples_per_s": 5000.0,
    "advice": [
        {"worker": "w1", "reason": "costs most", "gain": 1.31},
        {"worker": "w7", "reason": "has no useful share", "gain": 1.004},
    ],
    "imbalance": {"p50": 1.01, "p90": 1.043},
}
ROW = ["w1", "emulate:V100", "0", "0.25", "1,234,567", "41.2", "60.0", "40.0", "0.0", "3,000", "bf16", "12"]


def lines_of(shown: RenderableType, width: int = 120) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width).print(shown)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def words_of(shown: RenderableType) -> list[str]:
    return [" ".join(line.split()) for line in lines_of(shown)]


def test_a_worker_in_all_columns() -> None:
    lines = lines_of(worker_table([EMULATED, {**PLAIN, "precision": "fp32", "host_bound_steps": 0}]))
    assert lines[0] == "Workers (times per step in ms)"
    assert lines[1].split() == ["step", "step", "busy", "wait", "solo", "pre-", "host-"]
    assert lines[2].split() == [
        "worker", "device", "group", "share", "samples", "p50", "p99", "p50", "p50", "samples/s", "cision", "bound",
    ]  # fmt: skip
    assert lines[3].split() == ROW
    assert lines[4].split() == ["w0", "cpu", "0", "1.00", "300,000", "41.2", "60.0", "-", "0.0", "-", "fp32", "0"]


def test_columns_that_have_nothing_to_tell_are_left_out() -> None:
    lines = lines_of(worker_table([PLAIN, {**PLAIN, "worker": "w1", "host_bound_steps": 0}]))
    assert lines[2].split() == ["worker", "device", "group", "share", "samples", "p50", "p99", "p50"]
    assert lines[3].split() == ["w0", "cpu", "0", "1.00", "300,000", "41.2", "60.0", "0.0"]


def test_numbers_are_whole_on_a_narrow_terminal() -> None:
    lines = lines_of(worker_table([EMULATED]), width=80)
    assert max(map(len, lines)) <= 80
    whole = set(" ".join(lines).split())
    assert {cell for cell in ROW if cell != "emulate:V100"} <= whole
    # The name of the device is broken, but nothing of it is lost: it must not look like a real one.
    column = slice(lines[2].index("device"), lines[2].index(" group"))
    assert "".join(line[column].strip() for line in lines[3:]) == "emulate:V100"


def test_lines_on_what_unlike_hardware_cost() -> None:
    drifting = {**EMULATED, "worker": "w2", "numeric_drift": 0.031, "doubt": "its probes were noisy"}
    result = {
        "samples_per_s": 8676.0,
        "groups": [["w0"], ["w1", "w2"]],
        "workers": [PLAIN, EMULATED, drifting],
        "heterogeneity": HETEROGENEITY,
    }
    assert hardware_rows(result) == [
        ("groups", "w0; w1 + w2"),
        ("throughput", "0.96 of the sum of the solo speeds (9,000 samples/s)"),
        ("equal shares", "would give 5,000 samples/s, this run had 1.74 times that"),
        ("imbalance", "p90 1.04, a member's finishing time over the median of its step"),
        ("host-bound", "in 24 step(s) a worker's host was slower than the device that it emulates"),
        ("numeric drift", "emulate:V100 in bf16: 0.031 of its gradient"),
        ("in doubt", "the speed of w2: its probes were noisy"),
        ("advice", "w1: costs most (+31% throughput)"),
        ("advice", "w7: has no useful share (+0% throughput)"),
    ]


NOTHING = {
    "throughput_over_sum_of_solo": None,
    "sum_of_solo_samples_per_s": None,
    "equal_shares_samples_per_s": None,
    "advice": [],
    "imbalance": {"p50": None, "p90": None},
}


@pytest.mark.parametrize("heterogeneity", [NOTHING, {}, None])
def test_what_was_not_measured_is_not_told(heterogeneity: Any) -> None:
    exact = {**EMULATED, "precision": "fp32", "numeric_drift": 0.0, "host_bound_steps": 0}
    told = {"samples_per_s": 9.0, "groups": [["w1"]], "workers": [exact], "heterogeneity": heterogeneity}
    assert hardware_rows(told) == []


def test_of_a_large_group_some_are_named() -> None:
    members = [f"w{number}" for number in range(20)]
    (title, line), *_ = hardware_rows({"groups": [members, ["w20"]]})
    assert (title, line) == ("groups", f"{' + '.join(members[:8])} + 12 more; w20")


def test_the_report_of_a_job_that_is_done_has_all_three_parts() -> None:
    result = {
        "job": "a-1",
        "state": "succeeded",
        "passes": 1,
        "samples": 9,
        "version": 3,
        "probe_seconds": 1.13,
        "train_seconds": 0.5,
        "samples_per_s": 10000.0,
        "workers": [EMULATED],
        "groups": [["w1"]],
        "heterogeneity": HETEROGENEITY,
    }
    lines = words_of(render_report(result))
    assert "speed 10,000 samples/s (0.5 s of training, 1.1 s of probing)" in lines
    assert any(line.split() == ROW for line in lines)
    assert "equal shares would give 5,000 samples/s, this run had 2.00 times that" in lines


def test_a_job_that_trains_is_compared_by_its_speed_so_far() -> None:
    report = {"workers": [EMULATED], "groups": [["w1"]], "heterogeneity": HETEROGENEITY}
    lines = words_of(render_running({"id": "a-1", "progress": {"samples_per_s": 7500.0}, "report": report}))
    assert any(line.split() == ROW for line in lines)
    assert "equal shares would give 5,000 samples/s, this run had 1.50 times that" in lines


def test_before_its_first_sample_a_job_has_no_speed_to_compare() -> None:
    report = {"workers": [PLAIN], "groups": [["w0"]], "heterogeneity": HETEROGENEITY}
    lines = words_of(render_running({"id": "a-1", "progress": None, "report": report}))
    assert "equal shares would give 5,000 samples/s" in lines
