"""What simulated steps need: rows, bytes, dense values, tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from simulation_support import card

from coordinator.simulated_data import DrawnTokens, drawn_data, num_dense_values, num_keys, traffic_of
from coordinator.simulated_devices import Traffic, simulated_workers
from dense_workers.dense_layout import DenseLayout
from dense_workers.models import build_model
from geartrain.config import JobConfig
from geartrain.config.simulated_cluster import SimulatedCluster, SimulatedTokens
from geartrain.config.validation import validate
from geartrain.errors import ConfigError
from geartrain.types import Interval

FEATURES = [
    {"name": "user", "kind": "categorical"},
    {"name": "history", "kind": "sequence"},
    {"name": "price", "kind": "numeric"},
    {"name": "age", "kind": "numeric", "transform": "bucketize", "boundaries": [20.0, 40.0]},
]


def job(model: dict[str, Any], **changes: Any) -> JobConfig:
    fields = {
        "features": FEATURES,
        "label": "label",
        "data": {"root": "/nowhere", "format": "csv", "train": ["train.csv"]},
        "model": model,
    }
    return JobConfig.from_resolved({**fields, **changes})


@pytest.mark.parametrize(
    "model",
    [
        {"type": "lr"},
        {"type": "wide_deep", "embedding_dim": 5, "hidden": [7, 3]},
        {"type": "deepfm", "embedding_dim": 5, "hidden": [7], "batch_norm": True},
        {"type": "dcn", "embedding_dim": 3, "hidden": [6, 4], "num_cross_layers": 2},
        {"type": "dcn", "embedding_dim": 3, "hidden": [6], "batch_norm": True},
    ],
)
def test_dense_values_are_those_of_the_model(model: dict[str, Any]) -> None:
    config = job(model)
    built = build_model(config.model, num_slots=3, num_numeric_inputs=2, generator=torch.Generator())
    assert num_dense_values(config) == DenseLayout(built).num_values


def test_bytes_follow_the_codec_and_the_width_of_rows() -> None:
    machines = validate(SimulatedCluster, {"workers": [card("A", 1000)], "num_rows": 10})
    config = job({"type": "deepfm", "embedding_dim": 5, "hidden": [7]})
    traffic = traffic_of(config, drawn_data(machines, config, 10, seed=1))
    assert traffic.row_bytes == 4 * 6
    assert traffic.dense_bytes == 4 * num_dense_values(config)
    assert traffic.rows(np.array([100.0])) == pytest.approx([200.0])  # one row of each slot but the sequence
    half = job({"type": "deepfm", "embedding_dim": 5, "hidden": [7]}, compression={"embedding": "fp16"})
    assert traffic_of(half, drawn_data(machines, half, 10, seed=1)).row_bytes == 2 * 6 + 2  # its scale
    bytewise = job({"type": "deepfm", "embedding_dim": 5, "hidden": [7]}, compression={"embedding": "int8"})
    assert traffic_of(bytewise, drawn_data(machines, bytewise, 10, seed=1)).row_bytes == 6 + 8  # the row's own range


def test_a_sample_has_a_key_of_each_slot_and_of_each_token() -> None:
    assert num_keys(job({"type": "lr"}), tokens_per_sample=25.5) == 2 + 25.5


def test_what_the_cluster_file_says_wins() -> None:
    fields = {
        "workers": [card("A", 1000)],
        "num_rows": 10,
        "tokens_per_sample": {"least": 2, "most": 4},
        "rows_per_sample": 0.5,
    }
    data = drawn_data(validate(SimulatedCluster, fields), job({"type": "lr"}), 10, seed=1)
    assert data.tokens_per_sample == 3.0
    assert traffic_of(job({"type": "lr"}), data).rows(np.array([1000.0])) == pytest.approx([500.0])


def test_rows_lie_on_lines_between_what_is_known_and_go_on_beyond() -> None:
    traffic = Traffic(np.array([0.0, 100.0, 200.0]), np.array([0.0, 80.0, 120.0]), 4.0, 0.0)
    np.testing.assert_allclose(
        traffic.rows(np.array([0.0, 50.0, 100.0, 150.0, 200.0, 400.0])), [0, 40, 80, 100, 120, 200]
    )


def test_drawn_tokens_are_the_same_for_every_cut() -> None:
    tokens = DrawnTokens(SimulatedTokens(least=1, most=50), seed=3)
    whole = tokens.cumulative(Interval(0, 65_000, 67_000))
    assert whole[0] == 0
    assert set(np.diff(whole)) <= set(range(1, 51))
    parts = [tokens.cumulative(Interval(1, start, start + 500)) for start in range(65_000, 67_000, 500)]
    np.testing.assert_array_equal(np.concatenate([np.diff(part) for part in parts]), np.diff(whole))
    assert np.diff(tokens.cumulative(Interval(0, 0, 60_000))).mean() == pytest.approx(25.5, rel=0.02)


def test_workers_are_named_in_the_order_of_the_file() -> None:
    fields = {"workers": [card("A", 1000, count=2), card("B", 500, dies_at_s=3.0)], "num_rows": 10}
    workers = simulated_workers(validate(SimulatedCluster, fields))
    assert [(one.name, one.label, one.dies_at_s) for one in workers] == [
        ("w0", "emulate:A", None),
        ("w1", "emulate:A", None),
        ("w2", "emulate:B", 3.0),
    ]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cpu", "expected emulate:samples_per_s=N"),
        ("cuda:0", "its speed is not known"),
        ("emulate:samples_per_s=-3", "samples_per_s: expected a number"),
        ("gpu", "no such kind of device"),
    ],
)
def test_a_device_without_a_speed_is_refused_by_its_place(device: str, expected: str) -> None:
    fields = {"workers": [card("A", 1000), {"device": device}], "num_rows": 10}
    with pytest.raises(ConfigError) as refused:
        simulated_workers(validate(SimulatedCluster, fields))
    assert refused.value.facts["field"] == "workers.1.device"
    assert expected in refused.value.message
