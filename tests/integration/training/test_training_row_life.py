"""Tables whose rows are admitted, age and leave, each by a rule of its own, in one job of real processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from edge_data import write
from training_cluster import TrainingCluster

from kernels.hashing import keys_of_integers

ROWS = 480
BATCH = 40
UNSEEN = 1_000_000
"""Ids from here on are in no training file."""

TABLES: dict[str, dict[str, Any]] = {
    "always": {},
    "chance": {"admission": {"type": "probability", "p": 0.2}, "optimizer": {"type": "sgd", "lr": 0.1}},
    "counted": {"admission": {"type": "count", "n": 3, "sketch_mb": 1}, "optimizer": {"type": "adam", "lr": 0.01}},
    "unseen": {"expiry": {"type": "unseen", "versions": 4}, "row_dtype": "bf16"},
    "passes": {"expiry": {"type": "unseen", "passes": 1}, "optimizer": {"type": "ftrl", "lr": 0.1, "l1": 0.001}},
    "scored": {
        "expiry": {"type": "score", "threshold": 2.0, "decay": 0.5, "every_versions": 4},
        "optimizer": {"type": "rowwise_adam", "lr": 0.01},
    },
    "lru": {"max_rows": 1024, "row_dtype": "fp16"},
    "lfu": {"max_rows": 1024, "eviction": "lfu", "optimizer": {"type": "adagrad", "lr": 0.05}},
}


def columns(seed: int, first_id: int = 0) -> dict[str, list[int]]:
    """Few ids that are frequent and many that are rare, other ones in every column."""
    random = np.random.default_rng(seed)
    drawn = {name: first_id + np.minimum(random.zipf(1.3, ROWS), 5000) for name in TABLES}
    return {"label": [row % 2 for row in range(ROWS)], **{name: ids.tolist() for name, ids in drawn.items()}}


def config_of(train: str, passes: int, valid: Sequence[str]) -> dict[str, Any]:
    return {
        "name": "life",
        "features": [{"name": name, "kind": "categorical"} for name in TABLES],
        "label": "label",
        "data": {"root": ".", "format": "parquet", "train": [train], "valid": list(valid)},
        "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [8]},
        "training": {"passes": passes, "batch_size": BATCH},
        "tables": TABLES,
        "sync": {"mode": "sync"},
    }


def test_each_table_lives_by_its_own_rules(cluster: TrainingCluster) -> None:
    first, second = columns(1), columns(2, first_id=5001)
    train = write(cluster, "life-1.parquet", first)
    valid = write(cluster, "life-valid.parquet", columns(3, first_id=UNSEEN))
    trained = cluster.run(config_of(train, 2, [valid])).result
    assert trained["version"] == 2 * ROWS / BATCH
    told = cluster.tier_stats()
    loads = told["tables"]
    for name, counts in trained["embedding_tier"]["tables"].items():
        assert counts == {count: loads[name][count] for count in counts}
    assert {line["server"] for line in told["servers"]} == {"s0", "s1"}
    for load in loads.values():
        assert load["num_rows"] == load["num_admitted"] - load["num_expired"] - load["num_evicted"]
        assert load["num_rows"] > 0
        assert load["bytes_per_row"] == pytest.approx(load["bytes"] / load["num_rows"])

    def life(table: str) -> tuple[int, int, int, int]:
        load = loads[table]
        return load["num_admitted"], load["num_rejected"], load["num_expired"], load["num_evicted"]

    shown = {name: Counter(first[name]) for name in TABLES}
    # Also: the valid file, read after each pass, has put no row anywhere.
    assert life("always") == (len(shown["always"]), 0, 0, 0)
    assert life("passes") == (len(shown["passes"]), 0, 0, 0)
    assert 0 < life("chance")[0] < len(shown["chance"]) < life("chance")[1]
    assert life("counted")[0] == sum(2 * count >= 3 for count in shown["counted"].values())
    for table in ("unseen", "scored"):
        assert life(table)[1:] == (0, loads[table]["num_expired"], 0)
        assert loads[table]["num_expired"] > 0
    for table in ("lru", "lfu"):
        assert loads[table]["num_evicted"] > 0
        assert loads[table]["num_expired"] == 0
    _check_hottest(loads["always"]["hottest_keys"], shown["always"])

    # The same model goes on with other ids: what is not seen in the third pass leaves in the fourth.
    later = config_of(write(cluster, "life-2.parquet", second), 4, [])
    resumed = cluster.run(later, {"kind": "train", "init": "resume", "checkpoint": trained["checkpoint"]}).result
    assert resumed["version"] == 2 * trained["version"]
    passes = cluster.tier_stats()["tables"]["passes"]
    assert passes["num_rows"] == len(set(second["passes"]))
    assert passes["num_expired"] == len(shown["passes"])
    assert cluster.tier_stats()["tables"]["always"]["num_rows"] == len(shown["always"]) + len(set(second["always"]))


def _check_hottest(hottest: list[dict[str, Any]], shown: Counter[int]) -> None:
    ids = np.array(list(shown), dtype=np.int64)
    keys = keys_of_integers(ids, "always").tolist()
    shows = {f"{key:016x}": 2.0 * shown[one] for key, one in zip(keys, ids.tolist(), strict=True)}
    assert len(hottest) == 32
    assert all(one["shows"] == shows[one["key"]] for one in hottest)
    assert [one["shows"] for one in hottest] == sorted(shows.values(), reverse=True)[:32]
