"""Data at the edges: too little of it, awkward tails, one class, ids of every kind, ids never seen in training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from edge_data import config_of, random_columns, write
from trained_state import read_state
from training_cluster import Ended, TrainingCluster

from coordinator.conservation import prove_conservation
from coordinator.journal import Arrived, Decided, Skipped
from coordinator.journal_file import read_journal
from geartrain.types import Keys
from kernels.hashing import keys_of_integers

GROUPINGS = [
    ("sync", "auto", 0),
    ("sync", "auto", 1),
    ("sync", 1, 0),
    ("hybrid", 1, 1),
    ("async", 1, 0),
    ("async", 1, 1),
]


def sync_of(grouping: tuple[str, int | str, int]) -> dict[str, Any]:
    mode, group_size, depth = grouping
    return {"mode": mode, "group_size": group_size, "pipeline_depth": depth}


def keys(table: str, *ids: int) -> Keys:
    if max(ids) >= 2**63:
        return keys_of_integers(np.array(ids, dtype=np.uint64), table)
    return keys_of_integers(np.array(ids, dtype=np.int64), table)


def conserved(ended: Ended, num_rows: int, num_passes: int = 1, num_skipped: int = 0) -> None:
    """The journal proves the counts, and the result tells the same."""
    report = prove_conservation(ended.journal, num_rows, num_passes)
    assert (report.samples_applied, report.samples_skipped) == (num_rows * num_passes - num_skipped, num_skipped)
    assert (ended.result["samples"], ended.result["samples_skipped"]) == (report.samples_applied, num_skipped)


# --- the command, with more servers than rows -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def eight_servers(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """`geartrain train` with 8 servers on one table of 3 rows and a test set of one class: its JSON and its output."""
    folder = tmp_path_factory.mktemp("eight")
    (folder / "train.csv").write_text("label,item\n" + "0,a\n1,b\n1,c\n" * 20)
    (folder / "test.csv").write_text("label,item\n" + "1,a\n" * 5)
    config = {
        "features": [{"name": "item", "kind": "categorical"}],
        "label": "label",
        "data": {"train": ["train.csv"], "test": ["test.csv"]},
        "model": {"type": "deepfm", "embedding_dim": 2, "hidden": [4]},
        "training": {"passes": 1, "batch_size": 16},
    }
    (folder / "job.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "geartrain.cli", "train", str(folder / "job.json"), "--server-num", "8"]
    command += ["--worker-num", "2", "--json", "--output", str(folder / "output")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1]), folder / "output"


def test_eight_servers_share_a_table_of_three_rows(eight_servers: tuple[dict[str, Any], Path]) -> None:
    result, _ = eight_servers
    state = read_state(result["checkpoint"])
    counts = [about["num_rows"] for about in state.manifest.files.values() if about["part"] == "rows"]
    assert (len(counts), sum(counts)) == (8, 3)
    assert state.tables["item"].statistics[:, 0].tolist() == [20, 20, 20]
    assert result["samples"] == 60


def test_the_auc_of_one_class_is_null_and_says_why(eight_servers: tuple[dict[str, Any], Path]) -> None:
    test = eight_servers[0]["test"]
    assert (test["auc"], test["auc_reason"], test["num_samples"]) == (None, "all 5 labels are 1", 5)
    assert test["logloss"] > 0


def test_the_journal_of_a_run_stays_in_its_output(eight_servers: tuple[dict[str, Any], Path]) -> None:
    result, output = eight_servers
    report = prove_conservation(read_journal(output / "state", result["job"]), 60, 1)
    assert (report.samples_applied, report.versions) == (60, result["version"])


# --- little data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize(
    ("num_rows", "batch_size"),
    [(40, 30), (2, 2), (1, 30), (5, 1)],
    ids=["fewer batches than workers", "fewer samples than workers", "one row", "batches of one"],
)
def test_little_data(
    cluster: TrainingCluster, grouping: tuple[str, int | str, int], num_rows: int, batch_size: int
) -> None:
    columns = random_columns(num_rows)
    train = write(cluster, f"little-{num_rows}.parquet", columns)
    splits = {"valid": [train], "test": [train]}
    training = {"passes": 2, "batch_size": batch_size}
    ended = cluster.run(config_of(train, data=splits, training=training, sync=sync_of(grouping)))
    conserved(ended, num_rows, num_passes=2)
    assert ended.result["valid"]["num_samples"] == ended.result["test"]["num_samples"] == num_rows
    state = read_state(ended.result["checkpoint"])
    for table in ("user", "item"):
        seen, times = np.unique(np.array(columns[table]), return_counts=True)
        order = np.argsort(keys(table, *seen))
        assert np.array_equal(state.tables[table].keys, keys(table, *seen)[order])
        assert np.array_equal(state.tables[table].statistics[:, 0], 2 * times[order])


# --- batch norm and its tails -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_tail_of_one_sample_is_skipped_with_batch_norm(
    cluster: TrainingCluster, grouping: tuple[str, int | str, int]
) -> None:
    train = write(cluster, "tail-1.parquet", random_columns(61, num_numeric=1))
    model = {"hidden": [8, 4], "batch_norm": True}
    config = config_of(train, num_numeric=1, model=model, training={"passes": 2}, sync=sync_of(grouping))
    ended = cluster.run({**config, "data": {**config["data"], "valid": [train]}})
    conserved(ended, 61, num_passes=2, num_skipped=2)
    skipped = [entry.reason for entry in ended.journal if isinstance(entry, Skipped)]
    assert len(skipped) == 2 and all("batch norm needs 2 in a share" in reason for reason in skipped)
    state = read_state(ended.result["checkpoint"])
    assert np.isfinite(state.dense).all()
    assert (state.segment("tower.norm.0.mean") != 0).all()
    assert (state.segment("tower.norm.0.mean_square") != 1).all()


@pytest.mark.parametrize("group_size", ["auto", 1])
@pytest.mark.parametrize("tail", [2, 3, 4, 5])
def test_no_sample_of_a_longer_tail_is_lost_with_batch_norm(
    cluster: TrainingCluster, tail: int, group_size: int | str
) -> None:
    """No share of one sample: the tail goes to as many workers as can have two."""
    train = write(cluster, f"tail-{tail}.parquet", random_columns(30 + tail))
    ended = cluster.run(config_of(train, model={"batch_norm": True}, sync={"group_size": group_size}))
    conserved(ended, 30 + tail)


@pytest.mark.parametrize("batch_size", [2, 3, 5])
def test_groups_without_enough_for_batch_norm_leave_the_batch_to_others(
    cluster: TrainingCluster, batch_size: int
) -> None:
    train = write(cluster, "small-batches.parquet", random_columns(6 * batch_size))
    training = {"batch_size": batch_size}
    ended = cluster.run(config_of(train, model={"batch_norm": True}, training=training, sync={"group_size": 1}))
    conserved(ended, 6 * batch_size)
    assert ended.result["version"] == 6


# --- ids --------------------------------------------------------------------------------------------------------------


def test_negative_ids_and_the_largest_are_ids_like_any_other(cluster: TrainingCluster) -> None:
    signed = [-1, -(2**63), 2**63 - 1, 0, 1, -7]
    unsigned = [2**64 - 1, 0, 2**63, 2**63 - 1, 1, 2**64 - 7]
    columns = {"label": [0, 1] * 30, "user": signed * 10, "item": pa.array(unsigned * 10, pa.uint64())}
    train = write(cluster, "extreme-ids.parquet", columns)
    ended = cluster.run(config_of(train, data={"test": [train]}))
    conserved(ended, 60)
    state = read_state(ended.result["checkpoint"])
    assert np.array_equal(state.tables["user"].keys, np.sort(keys("user", *signed)))
    assert np.array_equal(state.tables["item"].keys, np.sort(keys("item", *unsigned)))
    for rows in state.tables.values():
        assert rows.statistics[:, 0].tolist() == [10] * 6
        assert len(np.unique(rows.values, axis=0)) == 6, "each id has a row of its own"


def test_ids_unseen_in_training_are_evaluated_and_get_no_row(cluster: TrainingCluster) -> None:
    train = write(cluster, "seen.parquet", random_columns(120))
    new = random_columns(90, seed=6)
    new["user"] = [10_000 + number for number in range(90)]
    unseen = write(cluster, "unseen.parquet", new)
    ended = cluster.run(config_of(train, data={"valid": [unseen], "test": [unseen]}, training={"passes": 2}))
    assert ended.result["test"]["num_samples"] == 90
    assert 0 < ended.result["test"]["auc"] < 1
    # The cut of the last pass was taken after two evaluations.
    rows = read_state(ended.result["checkpoint"]).tables
    assert np.array_equal(rows["user"].keys, np.sort(keys("user", *range(20))))
    assert len(rows["item"].keys) == 30


def test_evaluating_again_gives_the_same_numbers(cluster: TrainingCluster) -> None:
    train = write(cluster, "again.parquet", random_columns(120))
    test = write(cluster, "again-test.parquet", random_columns(77, seed=8))
    config = config_of(train, data={"test": [test]})
    trained = cluster.run(config).result
    task = {"kind": "evaluate", "split": "test", "checkpoint": trained["checkpoint"]}
    first, second = cluster.run(config, task).result["test"], cluster.run(config, task).result["test"]
    assert first == second == trained["test"]
    assert first["num_samples"] == 77


# --- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouping", [("sync", "auto", 0), ("async", 1, 0), ("hybrid", 1, 1)])
@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        ({"type": "warmup", "warmup_samples": 200, "start_factor": 0.1}, lambda x: min(1.0, 0.1 + 0.9 * x / 200)),
        ({"type": "cosine", "min_factor": 0.2}, lambda x: 0.2 + 0.8 * (1 + np.cos(np.pi * x / 240)) / 2),
    ],
    ids=["warmup", "cosine"],
)
def test_the_schedule_of_rates_is_in_the_decisions(
    cluster: TrainingCluster, grouping: tuple[str, int | str, int], schedule: dict[str, Any], factor: Any
) -> None:
    """Rates follow the samples applied before the window, dense and sparse, with a table's own rate."""
    train = write(cluster, "rates.parquet", random_columns(120))
    config = config_of(
        train, training={"passes": 2, "lr_schedule": schedule}, tables={"item": {"lr": 0.5}}, sync=sync_of(grouping)
    )
    ended = cluster.run(config)
    conserved(ended, 120, num_passes=2)
    assert not any(isinstance(entry, Skipped) for entry in ended.journal)
    sizes = {
        (entry.group, entry.step): entry.stop - entry.start for entry in ended.journal if isinstance(entry, Arrived)
    }
    applied = 0
    rates = set()
    for decision in (entry for entry in ended.journal if isinstance(entry, Decided)):
        expected = factor(applied)
        assert decision.dense_lr == pytest.approx(0.01 * expected)
        assert decision.sparse_lr == pytest.approx({"user": 0.05 * expected, "item": 0.5 * expected})
        rates.add(decision.dense_lr)
        applied += sum(sizes[step] for step in decision.steps)
    assert applied == 240
    assert len(rates) > 5


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_rate_of_zero_moves_nothing(cluster: TrainingCluster, mode: str) -> None:
    """The servers use the rate of the decision, not that of the config."""
    train = write(cluster, "still.parquet", random_columns(30))
    frozen = {"type": "warmup", "warmup_samples": 10**9, "start_factor": 0.0}
    still = cluster.run(config_of(train, training={"lr_schedule": frozen}, sync={"mode": mode, "group_size": 3}))
    moved = cluster.run(config_of(train, sync={"mode": mode, "group_size": 3}))
    untouched, trained = (read_state(ended.result["checkpoint"]) for ended in (still, moved))
    assert still.result["samples"] == 30
    for table, rows in untouched.tables.items():
        assert np.abs(rows.values).max() <= 0.01, "initial values lie in [-0.01, 0.01]"
        assert np.abs(trained.tables[table].values - rows.values).max() > 0.01
    assert (untouched.segment("head.bias") == 0).all()
    assert (trained.segment("head.bias") != 0).all()
