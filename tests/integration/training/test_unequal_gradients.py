"""Unequal shares give the gradient of one process: computed by the workers' own code, and by a whole cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import one_process
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from step_gradients import StepGradients
from trained_state import State, read_state
from training_cluster import TrainingCluster

from coordinator.cost_model import CostModel
from coordinator.events import MemberCost
from coordinator.journal import Arrived, SharesChanged
from coordinator.shares import cut_by_time
from geartrain.config import parse_config
from geartrain.errors import ConfigError
from geartrain.types import Interval

StepOf: TypeAlias = Callable[..., StepGradients]

FILES = {"a.csv": 300, "b.csv": 200}
BATCH_SIZE = 160
TOLERANCE = 1e-6
"""Relative to the norm of each part of the gradient (a weight matrix, a bias, the rows)."""
MODELS: dict[str, dict[str, Any]] = {
    "lr": {"type": "lr"},
    "wide_deep": {"type": "wide_deep", "embedding_dim": 8, "hidden": [32, 16]},
    "deepfm": {"type": "deepfm", "embedding_dim": 8, "hidden": [32, 16]},
    "dcn": {"type": "dcn", "embedding_dim": 8, "hidden": [32, 16], "num_cross_layers": 2},
}
SHARES: dict[str, Sequence[float]] = {
    "1:2:5": (1, 2, 5),
    "one without a share": (3, 0, 5),
    "the first without a share": (0, 1, 1),
    "one sample": (1 / 20, 7.95),
    "eight alike": (1,) * 8,
}


def write_rows(path: Path, num_rows: int) -> None:
    """Few ids, so that most stand in several shares; long sequences and empty ones; missing numbers."""
    draw = random.Random(2)
    lines = ["label,user,price,item,history,tags"]
    for _ in range(num_rows):
        history = "|".join(f"i{draw.randrange(50)}" for _ in range(draw.choice([0, 1, 2, 20])))
        tags = "|".join(f"t{draw.randrange(7)}" for _ in range(draw.choice([0, 1, 3])))
        price = "" if draw.random() < 0.2 else f"{draw.lognormvariate(1, 1):.3f}"
        label = int(draw.random() < 0.3)
        lines.append(f"{label},u{draw.randrange(30)},{price},i{draw.randrange(50)},{history},{tags}")
    path.write_text("\n".join(lines) + "\n")


def config_of(model: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "unequal",
        "features": [
            {"name": "user", "kind": "categorical"},
            {"name": "price", "kind": "numeric", "transform": "log1p"},
            {"name": "item", "kind": "categorical"},
            {"name": "history", "kind": "sequence", "table": "item", "pooling": "mean"},
            {"name": "tags", "kind": "sequence", "pooling": "sum"},
        ],
        "label": "label",
        "data": {"train": list(FILES)},
        "model": model,
        "training": {"passes": 1, "batch_size": BATCH_SIZE, "seed": 3},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unequal")
    for name, num_rows in FILES.items():
        write_rows(folder / name, num_rows)
    return folder


@pytest.fixture(scope="module")
def step_of(folder: Path) -> Iterator[StepOf]:
    """The step of a model, without or with batch norm; each is made once."""
    made: dict[tuple[str, bool], StepGradients] = {}

    def step_of(model: str, batch_norm: bool = False) -> StepGradients:
        if (model, batch_norm) not in made:
            fields = {**MODELS[model], **({"batch_norm": True} if batch_norm else {})}
            made[model, batch_norm] = StepGradients(folder, config_of(fields), BATCH_SIZE)
        return made[model, batch_norm]

    yield step_of
    for step in made.values():
        step.close()


def cuts_of(shares: Sequence[float]) -> list[int]:
    return [round(BATCH_SIZE * end / sum(shares)) for end in accumulate(shares, initial=0)]


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("model", MODELS)
def test_shares_add_up_to_the_gradient_of_one_process(step_of: StepOf, model: str, shares: Sequence[float]) -> None:
    step = step_of(model)
    truth, found = step.in_one_process(), step.of_shares(cuts_of(shares))
    assert found.error(truth) < TOLERANCE
    assert found.loss_sum == pytest.approx(truth.loss_sum, rel=TOLERANCE)


def test_the_comparison_sees_a_sample_that_is_missing(step_of: StepOf) -> None:
    step = step_of("deepfm")
    assert step.of_shares([0, 60, BATCH_SIZE - 1]).error(step.in_one_process()) > 1000 * TOLERANCE


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, BATCH_SIZE), max_size=6))
def test_wherever_the_batch_is_cut(step_of: StepOf, inner: list[int]) -> None:
    step = step_of("deepfm")
    cuts = [0, *sorted(inner), BATCH_SIZE]
    assert step.of_shares(cuts).error(step.of_shares([0, BATCH_SIZE])) < TOLERANCE


def test_shares_cut_by_time_are_such_shares(step_of: StepOf) -> None:
    costs = [MemberCost(CostModel(0.001, 1 / speed)) for speed in (1000, 2000, 5000)]
    cuts, _ = cut_by_time(Interval(0, 0, BATCH_SIZE), costs)
    assert [stop - start for start, stop in pairwise(cuts)] == pytest.approx([20, 40, 100], abs=2)
    step = step_of("wide_deep")
    assert step.of_shares(cuts).error(step.in_one_process()) < TOLERANCE


# --- batch norm: each worker normalizes by its own share, and the moments of the shares add up ------------------------


def test_the_moments_of_batch_norm_add_up_whatever_the_shares(step_of: StepOf) -> None:
    step = step_of("deepfm", batch_norm=True)
    moments = [one.name for one in step.segments if one.kind == "average"][:2]
    # Of the first layer: what deeper ones see was normalized share by share before.
    one, shared = step.of_shares([0, BATCH_SIZE]), step.of_shares(cuts_of((1, 2, 5)))
    for name in moments:
        assert np.linalg.norm(one.dense[name]) > 1
        assert shared.dense[name] == pytest.approx(one.dense[name], rel=1e-5, abs=1e-5)


def test_with_batch_norm_a_share_is_a_batch_of_its_own(step_of: StepOf) -> None:
    step = step_of("deepfm", batch_norm=True)
    whole = step.of_shares([0, BATCH_SIZE])
    assert step.of_shares([0, 0, BATCH_SIZE]).error(whole) == 0.0, "an empty share changes nothing"
    assert step.of_shares(cuts_of((1, 2, 5))).error(whole) > 1e-3
    with pytest.raises(ConfigError, match="a share of one sample"):
        step.of_shares([0, 1, BATCH_SIZE])


# --- the same by a whole cluster: processes that sum over gloo, servers that apply ------------------------------------

CARDS = tuple(f"emulate:name=A{speed},samples_per_s={speed}" for speed in (100, 200, 500))
SMALL_BATCH = 40
"""13 steps a pass: too few for a worker's speed to be doubted, so the shares stay as they were at first."""
STATE_TOLERANCE = 1e-5
"""Absolute, after a pass: float32 sums in another order, then optimizers that divide by their gradients' own size."""


@pytest.fixture(scope="module")
def cluster_of_unlike(folder: Path) -> Iterator[TrainingCluster]:
    with TrainingCluster(folder, 2, len(CARDS), CARDS) as cluster:
        yield cluster


def test_a_group_of_unlike_workers_trains_what_one_process_trains(
    cluster_of_unlike: TrainingCluster, folder: Path
) -> None:
    fields = config_of(MODELS["deepfm"])
    fields |= {
        "sync": {"mode": "sync"},
        "training": {
            **fields["training"],
            "batch_size": SMALL_BATCH,
            "precision": "fp32",
            "sparse_optimizer": {"type": "adagrad", "lr": 0.05},
        },
    }
    ended = cluster_of_unlike.run(fields)
    result, workers = ended.result, ended.result["workers"]
    assert result["groups"] == [["w0", "w1", "w2"]]
    assert workers[0]["samples"] < workers[1]["samples"] < workers[2]["samples"], workers
    assert not any(isinstance(entry, SharesChanged) for entry in ended.journal)
    assert sum(isinstance(entry, Arrived) for entry in ended.journal) == result["version"] == 13
    config = parse_config(fields, folder, (folder,))
    assert_same(read_state(result["checkpoint"]), one_process.train(config, [folder / name for name in FILES]))


def assert_same(state: State, plain: one_process.Trained) -> None:
    for name, table in plain.tables.items():
        keys = one_process.keys_of(table.ids, name)
        order = np.argsort(keys)
        assert np.array_equal(state.tables[name].keys, keys[order])
        assert np.abs(state.tables[name].values - table.values[order]).max() < STATE_TOLERANCE, name
    for name, values in plain.dense.items():
        assert np.abs(state.segment(name) - values).max() < STATE_TOLERANCE, name
