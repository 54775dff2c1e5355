"""What other choices would give: the partitions next to the one chosen, and the report of all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from simulation_support import card

from coordinator.grouping import Candidate, partition_cost
from coordinator.simulated_choices import merge_all, one_fewer, one_more
from coordinator.simulated_data import SimulatedData, drawn_data
from coordinator.simulated_report import simulate, time_by_cause
from coordinator.simulated_steps import CAUSES
from geartrain.config import JobConfig
from geartrain.config.simulated_cluster import SimulatedCluster
from geartrain.config.validation import validate


def candidates(speeds: dict[str, float], vendors: dict[str, str] | None = None) -> list[Candidate]:
    return [
        Candidate(worker, f"M{speed}", (vendors or {}).get(worker, "emulated"), speed)
        for worker, speed in speeds.items()
    ]


FOUR = candidates({"w0": 4000, "w1": 3900, "w2": 2000, "w10": 1000})


def test_one_fewer_merges_the_pair_that_costs_least() -> None:
    groups = (("w0", "w1"), ("w2",), ("w10",))
    assert one_fewer(groups, FOUR) == (("w0", "w1"), ("w2", "w10"))
    assert one_fewer((("w0", "w1", "w2", "w10"),), FOUR) is None


def test_one_fewer_never_mixes_vendors() -> None:
    mixed = candidates({"w0": 4000, "w1": 4000, "w2": 4000}, {"w2": "other"})
    assert one_fewer((("w0",), ("w1",), ("w2",)), mixed) == (("w2",), ("w0", "w1"))
    assert one_fewer((("w0", "w1"), ("w2",)), mixed) is None
    assert merge_all(mixed) == (("w0", "w1"), ("w2",))


def test_one_more_cuts_where_speeds_are_furthest_apart() -> None:
    assert one_more((("w0", "w1", "w2", "w10"),), FOUR) == (("w0", "w1"), ("w2", "w10"))
    assert one_more((("w0",), ("w1",)), FOUR[:2]) is None
    alike = candidates({f"w{number}": 1000 for number in range(8)})
    cut = one_more((tuple(one.worker for one in alike),), alike)
    assert cut is not None
    assert [len(group) for group in cut] == [4, 4]


def test_one_more_cuts_the_group_that_gains_most() -> None:
    six = [*FOUR, *candidates({"w3": 500, "w4": 490})]
    groups = (("w0", "w1", "w2", "w10"), ("w3", "w4"))
    cut = one_more(groups, six)
    assert cut == (("w3", "w4"), ("w0", "w1"), ("w2", "w10"))
    assert partition_cost(cut, six) < partition_cost(groups, six)


def config(**changes: Any) -> JobConfig:
    fields: dict[str, Any] = {
        "features": [{"name": name, "kind": "categorical"} for name in ("user", "item")],
        "label": "label",
        "data": {"root": "/nowhere", "format": "csv", "train": ["train.csv"]},
        "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [8]},
        "training": {"batch_size": 1200, "passes": 1},
    }
    return JobConfig.from_resolved({**fields, **changes})


def cluster(*cards: Any, **fields: Any) -> SimulatedCluster:
    return validate(SimulatedCluster, {"workers": list(cards), "num_rows": 60_000, **fields})


def told(machines: SimulatedCluster, job: JobConfig, num_samples: int = 60_000) -> dict[str, Any]:
    return simulate(machines, job, drawn_data(machines, job, 60_000, seed=1), num_samples, seed=1)


def test_a_mixed_cluster_is_told_with_all_its_choices() -> None:
    result = told(cluster(card("A", 6000, count=3), card("B", 3000, count=3)), config())
    assert result["samples"] == 60_000
    assert [group["members"] for group in result["groups"]] == [["w0", "w1", "w2"], ["w3", "w4", "w5"]]
    assert [round(sum(group["shares"]), 3) for group in result["groups"]] == [1.0, 1.0]
    assert sum(one["share"] for one in result["time"]) == pytest.approx(1.0, abs=0.001)
    by_name = {one["choice"]: one for one in result["choices"]}
    assert list(by_name) == [
        "as chosen",
        "equal shares in one group",
        "one group with matched shares",
        "one group more",
        "window of 0 ms",
        "every window waits for all (sync)",
    ]
    assert by_name["as chosen"]["over_chosen"] == 1.0
    assert by_name["equal shares in one group"]["over_chosen"] < 0.75
    assert by_name["every window waits for all (sync)"]["max_staleness"] == 0
    unlike = result["heterogeneity"]
    assert unlike["equal_shares_samples_per_s"] == by_name["equal shares in one group"]["samples_per_s"]
    assert 0.75 < unlike["throughput_over_sum_of_solo"] <= 1.0  # steps of 44 ms, 12 ms beside
    # The solo speed is that of whole batches: 1,200 samples at 6,000 a second and 12 ms beside, and what rows take.
    assert result["workers"][0]["solo_samples_per_s"] == pytest.approx(1200 / 0.2122, rel=0.001)
    assert unlike["sum_of_solo_samples_per_s"] == pytest.approx(
        sum(one["solo_samples_per_s"] for one in result["workers"]), abs=1
    )


def test_one_group_has_no_other_window() -> None:
    result = told(cluster(card("A", 6000, count=3)), config(), 6000)
    assert [one["choice"] for one in result["choices"]] == ["as chosen", "equal shares in one group", "one group more"]


def test_without_heterogeneous_shares_are_equal() -> None:
    result = told(cluster(card("A", 6000), card("B", 3000)), config(heterogeneous=False), 6000)
    assert result["samples_per_s"] == result["heterogeneity"]["equal_shares_samples_per_s"] < 6000
    matched = next(one for one in result["choices"] if one["choice"] == "one group with matched shares")
    assert matched["over_chosen"] > 1.3


def test_the_config_says_how_windows_close_and_what_people_set() -> None:
    job = config(sync={"mode": "async"}, portrait={"initial": {"w1": {"samples_per_s": 9000}}})
    result = told(cluster(card("A", 6000), card("B", 3000)), job, 6000)
    assert len(result["groups"]) == 2
    assert result["staleness"]["max"] >= 1
    # w1 is believed to be faster than it is: its batches are too large, until its steps tell.
    assert result["groups"][0]["members"] == ["w1"]


def test_deaths_are_among_the_events() -> None:
    result = told(cluster(card("A", 2000, count=2), card("A", 2000, dies_at_s=2.0)), config())
    assert result["num_events"] == len(result["events"]) == 2
    assert result["events"][1]["at_s"] == 4.0
    assert result["workers"][2]["group"] is None
    assert next(one for one in result["time"] if one["cause"] == "deaths")["worker_s"] > 4.0


def test_time_is_weighed_by_speed() -> None:
    spent = np.zeros((len(CAUSES), 2))
    spent[0] = [1.0, 3.0]
    spent[1] = [3.0, 1.0]
    rows = time_by_cause(spent, np.array([3000.0, 1000.0]))
    assert [(one["cause"], one["share"], one["worker_s"]) for one in rows[:3]] == [
        ("computing", 0.375, 4.0),
        ("jitter", 0.625, 4.0),
        ("mismatch", 0.0, 0.0),
    ]


def test_more_servers_apply_faster() -> None:
    slow = {"overheads": {"apply_rows_per_s": 1e5, "pull_rows_per_s": 1e5}}
    few = told(cluster(card("A", 6000), servers=1, **slow), config(), 12_000)
    many = told(cluster(card("A", 6000), servers=4, **slow), config(), 12_000)
    # 1,200 samples of two rows each are pulled and applied at 100,000 a second.
    assert few["seconds"] - many["seconds"] == pytest.approx(10 * 2 * 0.024 * (1 - 1 / 4), rel=0.02)


def test_lengths_that_are_known_decide_the_traffic() -> None:
    machines = cluster(card("A", 6000, bandwidth_mb_s=1.0))
    data = SimulatedData(60_000, None, 0.0, np.array([0, 600, 1200]), np.array([0, 300, 400]))
    result = simulate(machines, config(), data, 12_000, seed=1)
    worst = told(machines, config(), 12_000)
    # A row has five values: 28 bytes with its key to pull, 36 with its statistics to push. 400 rows instead of 2,400.
    assert worst["seconds"] - result["seconds"] == pytest.approx(10 * 2000 * 64e-6, rel=0.01)
