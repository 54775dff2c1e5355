"""The CLUSTER file of `geartrain simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geartrain.config.simulated_cluster import MAX_WORKERS, SimulatedCluster, load_cluster
from geartrain.errors import ConfigError

ONE = {"device": "emulate:samples_per_s=3000"}
EXAMPLES = Path(__file__).parents[3] / "examples"


def load(folder: Path, text: str) -> SimulatedCluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return load_cluster(path)


def test_defaults(tmp_path: Path) -> None:
    cluster = load(tmp_path, 'workers: [{device: "emulate:samples_per_s=3000", count: 3}]\n')
    assert cluster.num_workers == 3
    assert cluster.servers == 2
    assert cluster.num_rows is None
    assert cluster.overheads.lease_s == 2.0
    assert cluster.workers[0].dies_at_s is None


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("cluster_*.yaml")), ids=lambda path: path.stem)
def test_examples_can_be_read(path: Path) -> None:
    assert load_cluster(path).num_workers >= 7


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "workers"),
        ({"workers": []}, "workers"),
        ({"workers": [{**ONE, "count": 0}]}, "workers.0.count"),
        ({"workers": [{**ONE, "count": MAX_WORKERS}, ONE]}, "workers"),
        ({"workers": [{**ONE, "dies_at_s": -1}]}, "workers.0.dies_at_s"),
        ({"workers": [{**ONE, "die_at_s": 1}]}, "workers.0.die_at_s"),
        ({"workers": [ONE], "servers": 0}, "servers"),
        ({"workers": [ONE], "num_rows": 0}, "num_rows"),
        ({"workers": [ONE], "rows_per_sample": 0}, "rows_per_sample"),
        ({"workers": [ONE], "tokens_per_sample": {"least": 5, "most": 4}}, "tokens_per_sample.most"),
        ({"workers": [ONE], "overheads": {"step_ms": -1}}, "overheads.step_ms"),
        ({"workers": [ONE], "overheads": {"apply_rows_per_s": 0}}, "overheads.apply_rows_per_s"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(ConfigError) as refused:
        load_cluster(path)
    assert refused.value.facts["field"] == field
    assert refused.value.facts["file"] == str(path)
    assert refused.value.message.startswith(f"{path}: {field}: ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml: expected a config file"):
        load_cluster(tmp_path / "nothing.yaml")
