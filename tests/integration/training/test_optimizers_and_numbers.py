"""Every optimizer moves every parameter as its formula says; numbers that are none never reach a parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from edge_data import config_of, random_columns, write
from trained_state import State, read_state
from training_cluster import TrainingCluster

from coordinator.conservation import prove_conservation
from coordinator.journal import Skipped
from dense_workers.models import build_model
from geartrain.config.model import ModelConfig
from geartrain.types import Floats
from kernels.initializer import Initializer, initial_rows, initializer_seed

SEED = 11


def deltas(state: State) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """What the first step added to each table's rows [R, D] and to each dense parameter."""
    rows = {}
    for table, trained in state.tables.items():
        initializer = Initializer("uniform", 0.01, initializer_seed(SEED, table))
        rows[table] = trained.values - initial_rows(trained.keys, trained.values.shape[1], initializer)
    model = build_model(
        ModelConfig(type="deepfm", embedding_dim=4, hidden=(8,)),
        num_slots=2,
        num_numeric_inputs=2,
        generator=torch.Generator().manual_seed(SEED),
    )
    dense = {name: state.segment(name) - value.detach().numpy() for name, value in model.named_parameters()}
    return rows, dense


@pytest.fixture(scope="module")
def one_step(cluster: TrainingCluster) -> Any:
    """Train one step with these optimizers; the deltas."""
    columns = random_columns(60, num_numeric=1)
    columns["x0"][7] = None  # so that the indicator of a missing value has a gradient
    train = write(cluster, "one-step.parquet", columns)
    done: dict[tuple[str, float, str, float], tuple[dict[str, Floats], dict[str, Floats]]] = {}

    def run(sparse: str, sparse_lr: float, dense: str, dense_lr: float) -> Any:
        training = {
            "batch_size": 60,
            "seed": SEED,
            "sparse_optimizer": {"type": sparse, "lr": sparse_lr},
            "dense_optimizer": {"type": dense, "lr": dense_lr},
        }
        setting = (sparse, sparse_lr, dense, dense_lr)
        if setting not in done:
            result = cluster.run(config_of(train, num_numeric=1, training=training)).result
            assert result["version"] == 1
            done[setting] = deltas(read_state(result["checkpoint"]))
        return done[setting]

    return run


GRADIENT = ("sgd", 1.0, "sgd", 1.0)
"""The gradient of the first step does not depend on the optimizer: SGD at rate 1 shows it."""
ROW_EPS = {"adagrad": 1e-10, "adam": 1e-8 / np.sqrt(1 - 0.999)}
"""Adam of rows adds epsilon before the correction of the bias, as torch.optim.SparseAdam does."""
DENSE_EPS = {"adagrad": 1e-10, "adam": 1e-8}


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_the_first_delta_of_every_row(one_step: Any, kind: str) -> None:
    gradients, _ = one_step(*GRADIENT)
    moved, _ = one_step(kind, 0.25, "adam", 0.5)
    assert set(moved) == {"user", "item"}
    for table, delta in moved.items():
        gradient = -gradients[table].astype(np.float64)
        assert (gradient != 0).all(), "every value of every row has a gradient"
        # A gradient read off as a difference of values near 0.01 is good to 1e-9.
        clear = np.abs(gradient) > 1e-5
        assert clear.mean() > 0.8
        expected = -0.25 * _direction(kind, gradient, ROW_EPS)
        assert np.allclose(delta[clear], expected[clear], rtol=2e-3, atol=1e-9), table


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adam"])
def test_the_first_delta_of_every_dense_parameter(one_step: Any, kind: str) -> None:
    _, gradients = one_step(*GRADIENT)
    _, moved = one_step("adam" if kind == "sgd" else kind, 0.25, kind, 0.5)
    assert set(moved) == {"numeric.weight", "tower.affine.0.weight", "tower.affine.0.bias", "head.weight", "head.bias"}
    for name, delta in moved.items():
        gradient = -gradients[name].astype(np.float64)
        clear = np.abs(gradient) > 1e-4
        assert clear.any(), name
        expected = -0.5 * _direction(kind, gradient, DENSE_EPS)
        assert np.allclose(delta[clear], expected[clear], rtol=2e-3, atol=1e-7), name


def _direction(kind: str, gradient: Any, eps: dict[str, float]) -> Any:
    """The first update over the learning rate: states were 0."""
    if kind == "sgd":
        return gradient
    if kind == "rowwise_adagrad":
        return gradient / np.sqrt(np.square(gradient).mean(1, keepdims=True))
    return gradient / (np.abs(gradient) + eps[kind])


# --- NaN and Inf ------------------------------------------------------------------------------------------------------

HUGE = 3e38
NUM_NUMERIC = 8


def poisoned(cluster: TrainingCluster) -> str:
    """120 rows, 4 batches; in the second, in rows 35 and 36, numbers that no float32 tower survives."""
    columns = random_columns(120, num_numeric=NUM_NUMERIC)
    for row in (35, 36):
        for number in range(NUM_NUMERIC):
            columns[f"x{number}"][row] = HUGE
    return write(cluster, "poisoned.parquet", columns)


@pytest.mark.parametrize(
    ("sync", "num_skipped"),
    [
        ({"group_size": "auto"}, 30),
        ({"group_size": "auto", "pipeline_depth": 1}, 30),
        ({"group_size": 1}, 10),
        ({"group_size": 1, "mode": "async", "pipeline_depth": 1}, 10),
    ],
    ids=["one group", "one group, depth 1", "groups of one", "async, depth 1"],
)
def test_steps_without_finite_gradients_are_skipped_and_counted(
    cluster: TrainingCluster, sync: dict[str, Any], num_skipped: int
) -> None:
    training = {"passes": 2, "max_skipped_steps": 2}
    ended = cluster.run(config_of(poisoned(cluster), num_numeric=NUM_NUMERIC, training=training, sync=sync))
    report = prove_conservation(ended.journal, 120, 2)
    assert report.samples_skipped == ended.result["samples_skipped"] == 2 * num_skipped
    assert report.samples_applied == ended.result["samples"] == 240 - 2 * num_skipped
    members = 3 if sync["group_size"] == "auto" else 1
    reasons = [entry.reason for entry in ended.journal if isinstance(entry, Skipped)]
    assert reasons == [f"NaN, Inf or too large on 1 of {members}"] * 2
    state = read_state(ended.result["checkpoint"])
    assert np.isfinite(state.dense).all() and np.isfinite(state.dense_states).all()
    for rows in state.tables.values():
        assert np.isfinite(rows.values).all() and np.isfinite(rows.states).all()


def test_more_skipped_steps_than_allowed_fail_the_job_by_name(cluster: TrainingCluster) -> None:
    config = config_of(poisoned(cluster), num_numeric=NUM_NUMERIC, training={"passes": 2, "max_skipped_steps": 1})
    error = cluster.run(config).error
    assert error["code"] == "non_finite_gradient"
    assert (error["field"], error["num_skipped"], error["allowed"]) == ("training.max_skipped_steps", 2, 1)
    assert "NaN, Inf or too large on 1 of 3" in error["message"]


def test_a_rate_that_blows_the_model_up_fails_the_job_by_name(cluster: TrainingCluster) -> None:
    train = write(cluster, "blown.parquet", random_columns(120, num_numeric=1))
    training = {"passes": 2, "dense_optimizer": {"type": "sgd", "lr": 1e30}}
    error = cluster.run(config_of(train, num_numeric=1, model={"hidden": [8, 8]}, training=training)).error
    assert (error["code"], error["allowed"]) == ("non_finite_gradient", 0)


def test_scores_that_are_no_numbers_fail_the_job_by_name(cluster: TrainingCluster) -> None:
    """One step of finite gradients leaves finite weights of 1e28, of which no layer can make a probability."""
    train = write(cluster, "overflow.parquet", random_columns(60, num_numeric=1))
    training = {"batch_size": 60, "dense_optimizer": {"type": "sgd", "lr": 1e30}}
    model = {"hidden": [8, 8]}
    error = cluster.run(config_of(train, num_numeric=1, model=model, training=training, data={"valid": [train]})).error
    assert error["code"] == "non_finite_gradient"
    assert "of 60 scores are NaN or Inf" in error["message"]


def test_the_cluster_goes_on_after_a_job_that_failed(cluster: TrainingCluster) -> None:
    assert cluster.run(config_of(poisoned(cluster), num_numeric=NUM_NUMERIC)).error["num_skipped"] == 1
    train = write(cluster, "sound.parquet", random_columns(60, num_numeric=NUM_NUMERIC))
    assert cluster.run(config_of(train, num_numeric=NUM_NUMERIC)).result["samples"] == 60
