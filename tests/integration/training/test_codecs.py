"""Jobs whose rows and gradients cross the wire in fewer bits, in real processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_data import config_of, random_columns, write
from trained_state import read_state
from training_cluster import TrainingCluster

from coordinator.conservation import prove_conservation

NUM_USERS, NUM_ITEMS = 150, 200
NUM_ROWS = {"codec-train.parquet": 30_000, "codec-test.parquet": 20_000}


def write_taste(cluster: TrainingCluster) -> None:
    """Users click more or less, items are clicked more or less: only rows that were learned well tell who clicks what.

    Nothing else is to be learned, so that the AUC does not depend on the way that training takes.
    """
    random = np.random.default_rng(7)
    users, items = random.standard_normal(NUM_USERS), random.standard_normal(NUM_ITEMS)
    for name, num_rows in NUM_ROWS.items():
        user, item = random.integers(0, NUM_USERS, num_rows), random.integers(0, NUM_ITEMS, num_rows)
        clicks = random.random(num_rows) < 1 / (1 + np.exp(-1.5 * (users[user] + items[item])))
        write(cluster, name, {"label": clicks.astype(np.int8).tolist(), "user": user.tolist(), "item": item.tolist()})


def taste_config(codec: str) -> dict[str, Any]:
    return config_of(
        "codec-train.parquet",
        data={"test": ["codec-test.parquet"]},
        training={"passes": 2, "batch_size": 500, "sparse_optimizer": {"type": "adagrad", "lr": 0.1}},
        compression={"embedding": codec},
    )


@pytest.fixture(scope="module")
def exact(cluster: TrainingCluster) -> dict[str, Any]:
    write_taste(cluster)
    return cluster.run(taste_config("fp32")).result


@pytest.mark.parametrize("codec", ["fp16", "bf16", "int8"])
def test_a_model_is_as_good_as_without(cluster: TrainingCluster, exact: dict[str, Any], codec: str) -> None:
    result = cluster.run(taste_config(codec)).result
    assert exact["test"]["auc"] > 0.8
    assert result["test"]["auc"] == pytest.approx(exact["test"]["auc"], abs=0.002)
    state, exact_state = read_state(result["checkpoint"]), read_state(exact["checkpoint"])
    assert state.bits() != exact_state.bits(), "nothing was rounded"
    for table, rows in state.tables.items():
        assert rows.values.dtype == np.float32
        assert np.array_equal(rows.keys, exact_state.tables[table].keys)
        assert np.array_equal(rows.statistics, exact_state.tables[table].statistics)


@pytest.mark.parametrize("mode", ["sync", "hybrid", "async"])
def test_every_mode_trains_in_fp16(cluster: TrainingCluster, mode: str) -> None:
    train = write(cluster, f"codec-{mode}.parquet", random_columns(300))
    sync = {"mode": mode, "group_size": 1, "pipeline_depth": 1}
    ended = cluster.run(config_of(train, sync=sync, compression={"embedding": "fp16"}))
    assert ended.result["samples"] == 300
    assert prove_conservation(ended.journal, 300, 1).samples_applied == 300
