"""The lines of the benchmarks of unlike hardware, from runs that were made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import convergence, heterogeneity
from benchmarks.heterogeneity import CASES
from benchmarks.support.emulated_runs import Run
from benchmarks.support.solo_runs import SoloSpeed
from benchmarks.support.unlike_case import Case, Limit, Measured, line_of
from benchmarks.support.unlike_findings import chance

BY_NAME = {case.name: case for case in CASES}
EVERYONE = [f"w{number}" for number in range(8)]


def run(
    samples_per_s: float, *, groups: list[list[str]] | None = None, samples: tuple[int, ...] = (), **more: Any
) -> Run:
    workers = [{"worker": f"w{number}", "samples": one, "host_bound_steps": 1} for number, one in enumerate(samples)]
    result = {
        "samples_per_s": samples_per_s,
        "groups": groups or [["w0"]],
        "workers": workers,
        **more.pop("result", {}),
    }
    return Run(result, more.get("points", ()), more.get("events", ()), more.get("portraits", {}))


def measured(
    case: Case, matched: Run, equal: float, simulated: float = 0.0, speeds: tuple[float, ...] = ()
) -> Measured:
    solos = tuple(SoloSpeed(speed, 0) for speed in speeds or (card.samples_per_s for card in case.cards))
    told = {"samples_per_s": simulated or matched.samples_per_s, "choices": []}
    return Measured(case, matched, run(equal), solos, told, {"samples_per_s": equal})


def test_a_case_that_is_as_it_should_be() -> None:
    groups = [["w0", "w1"], ["w2", "w3"]]
    line = line_of(measured(BY_NAME["3:2:1:1"], run(13_650, groups=groups, samples=(6, 4, 2, 2)), 7_800))
    assert list(line)[:6] == [
        "name",
        "samples_per_s",
        "sum_of_solo_samples_per_s",
        "throughput_over_sum_of_solo",
        "equal_shares_samples_per_s",
        "speedup_over_equal_shares",
    ]
    assert line["throughput_over_sum_of_solo"] == 0.975
    assert line["speedup_over_equal_shares"] == 1.75
    assert line["equal_over_slowest"] == 0.975
    assert line["simulated_over_measured"] == 1.0
    assert (line["groups"], line["host_bound_steps"]) == (groups, 4)
    assert (line["reached"], line["missed"]) == (True, [])
    json.dumps(line)


@pytest.mark.parametrize(
    ("speed", "equal", "simulated", "missed"),
    [
        (13_200.0, 7_800.0, 0.0, "throughput_over_sum_of_solo 0.9429 < 0.95"),
        (14_400.0, 7_800.0, 0.0, "throughput_over_sum_of_solo 1.0286 > 1.02"),
        (13_650.0, 8_400.0, 0.0, "speedup_over_equal_shares 1.625 < 1.65"),
        (13_650.0, 7_200.0, 0.0, "equal_over_slowest 0.9 < 0.93"),
        (13_650.0, 7_800.0, 14_400.0, "simulated_over_measured 1.0549 > 1.05"),
    ],
)
def test_what_is_missed_is_said(speed: float, equal: float, simulated: float, missed: str) -> None:
    line = line_of(measured(BY_NAME["3:2:1:1"], run(speed), equal, simulated))
    assert (line["reached"], line["missed"]) == (False, [missed])


def test_a_figure_that_is_not_there_is_missed() -> None:
    assert Limit().missed_by("reason", None) == "reason is missing"
    assert Limit().missed_by("reason", "w0 is slow") == ""


def test_groups_by_model() -> None:
    case = BY_NAME["3+3"]
    right = [["w0", "w1", "w2"], ["w3", "w4", "w5"]]
    assert line_of(measured(case, run(26_000, groups=right), 17_500))["groups_by_model"] is True
    wrong = line_of(measured(case, run(26_000, groups=[[f"w{number}" for number in range(6)]]), 17_500))
    assert (wrong["groups_by_model"], wrong["reached"]) == (False, False)


def test_groups_and_shares_beside_the_best() -> None:
    case = BY_NAME["4 models x 2"]
    best = [["w0", "w1"], ["w2", "w3"], ["w4", "w5"], ["w6", "w7"]]
    shares = (400, 400, 300, 300, 200, 200, 100, 100)
    line = line_of(measured(case, run(19_500, groups=best, samples=shares), 7_800))
    assert (line["groups_are_best"], line["worst_share_error"], line["reached"]) == (True, 0.0, True)
    off = line_of(measured(case, run(19_500, groups=[EVERYONE], samples=(420, *shares[1:])), 7_800))
    assert off["groups_are_best"] is False
    assert off["worst_share_error"] == pytest.approx(0.0396, abs=1e-4)


def test_chance_costs_what_order_statistics_say() -> None:
    assert chance(1, 0.2) == 1.0
    assert chance(4, 0.2) == pytest.approx(1 / 1.12)
    line = line_of(measured(BY_NAME["jitter"], run(10_600, groups=[["w0", "w1", "w2", "w3"]]), 10_600))
    assert line["bound_samples_per_s"] == pytest.approx(12_000 / 1.12, abs=0.1)
    assert (line["throughput_over_bound"], line["reached"]) == (0.9893, True)


def throttled(*rates: float, told_at_s: float) -> Run:
    """Training begins at second 1000 and has a point a second; the card throttles 15 s later."""
    points, samples = [], 0.0
    for number, rate in enumerate(rates, 1):
        samples += rate
        points.append({"time": 1000.0 + number, "samples": samples, "samples_per_s": rate})
    told = [(1000.0, "pass", "pass 1 of 1 begins")]
    told += [(told_at_s, "shares", f"{worker} needs 2.0 times") for worker in ("w3", "w0", "w2")]
    events = [{"kind": kind, "time": at_s, "message": message} for at_s, kind, message in told]
    return run(samples / len(rates), points=points, events=events)


def test_recovery_from_throttling() -> None:
    case = BY_NAME["throttle"]
    assert case.batch_size == 2_800
    slow = throttled(*[13_500] * 15, *[7_000] * 8, *[9_950] * 20, told_at_s=1023.0)
    line = line_of(measured(case, slow, 7_800, speeds=(3000, 4000, 2000, 2000)))
    assert line["sum_of_solo_samples_per_s"] == 11_000
    assert (line["before_samples_per_s"], line["samples_per_s"]) == (13_500, 9_950)
    assert (line["steps_to_recover"], line["steps_after"]) == (20, 91)
    assert (line["reason"], line["reached"]) == ("w0 needs 2.0 times", True)
    lost = throttled(*[13_500] * 15, *[7_000] * 28, told_at_s=1010.0)
    line = line_of(measured(case, lost, 7_800, speeds=(3000, 4000, 2000, 2000)))
    assert (line["steps_to_recover"], line["reason"], line["samples_per_s"]) == (None, None, 7_000)
    assert not line["reached"]


def test_correction_of_a_wrong_portrait() -> None:
    case = BY_NAME["wrong-portrait"]
    assert case.batch_size == 2_800
    known = [{"cost": {"fixed_s": 0.0, "sample_s": 1 / speed}, "measured_at": at} for speed, at in ((6000, 990.0),)]
    now = {"cost": {"fixed_s": 0.01, "sample_s": 1 / 2100}, "measured_at": 1010.0, "history": known}
    corrected = replace(throttled(*[7_000] * 10, *[13_300] * 10, told_at_s=1010.0), portraits={"w2": now})
    line = line_of(measured(case, corrected, 7_800))
    assert (line["steps_to_correct"], line["once_right_over_sum_of_solo"], line["reached"]) == (25, 0.95, True)
    never = replace(corrected, portraits={"w2": {**known[0], "history": []}})
    line = line_of(measured(case, never, 7_800))
    assert (line["steps_to_correct"], line["reached"]) == (None, False)


def test_every_case_is_sized_in_whole_steps() -> None:
    for case in CASES:
        for shape in (case.shape, case.equal_shape):
            assert shape.num_rows % shape.batch_size == 0
        solo = case.solo(0, 20.0)
        assert solo.shape.changes["heterogeneous"] is False
        seconds = solo.shape.num_rows / solo.card.described_speed(case.workload.tokens_per_sample)
        assert 15 < seconds < 25, case.name
    # Equal cards are measured once; a card that throttles by the one that it then is like.
    assert {BY_NAME[name].solo(number, 1.0).key for name, number in (("3+3", 0), ("3+3", 1), ("3:2:1:1", 0))} == {
        "emulate:name=A100,samples_per_s=6000 frappe"
    }
    assert BY_NAME["throttle"].solo(0, 1.0).key == "emulate:name=V100,samples_per_s=3000 frappe"


def test_convergence_is_judged_by_the_means() -> None:
    def results(*aucs: float) -> list[dict[str, Any]]:
        plain = {"best_pass": 3, "groups": [["w0"]], "staleness": {"max": 1}, "samples_per_s": 10.4}
        return [{"test": {"auc": auc}, **plain} for auc in aucs]

    hybrid, _, no_decay, _ = convergence.OTHERS
    sync = results(0.984, 0.982)
    line = convergence.line_of(hybrid, results(0.983, 0.9814), sync)
    assert (line["auc_mean"], line["sync_auc_mean"], line["difference"]) == (0.9822, 0.983, -0.0008)
    assert (line["num_seeds"], line["reached"], line["samples_per_s"]) == (2, True, 10)
    assert line["auc_std"] == pytest.approx(0.001131)
    assert convergence.line_of(hybrid, results(0.98, 0.98), sync)["reached"] is False
    assert convergence.line_of(no_decay, results(0.9), sync)["reached"] is None
    assert convergence.convergence_table([line]).row_count == 1


def test_cases_stand_in_a_table() -> None:
    line = line_of(measured(BY_NAME["3:2:1:1"], run(13_000.0), 7_800.0))
    assert heterogeneity.unlike_table([line]).row_count == 1


def test_examples_of_the_benchmarks_are_there() -> None:
    assert Path(convergence.EXAMPLE).is_file()
