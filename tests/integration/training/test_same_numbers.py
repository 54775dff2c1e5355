"""A cluster computes what one process computes: same initial values and same batches give the same rows and weights."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import one_process
import pytest
from trained_state import State, read_state
from training_cluster import TrainingCluster

from geartrain.config import parse_config

NUM_STEPS = 50
BATCH_SIZE = 64
FILES = {"a.csv": 1500, "b.csv": 1000, "c.csv": 700}

TOLERANCE = 1e-5
"""Absolute, for float32. The cluster adds the same gradients in another order (worker by worker, summed first and then
divided), so each gradient differs in its last bit, about 1e-7 of values below 1; the optimizers divide by the
gradients' own size, so that each of the 50 steps adds at most a few 1e-8. A gradient that is lost, doubled, late or
divided by another count moves values by a part of the learning rate: 1e-3 and more."""

FEATURES = [
    {"name": "user", "kind": "categorical"},
    {"name": "price", "kind": "numeric", "transform": "log1p"},
    {"name": "item", "kind": "categorical"},
    {"name": "history", "kind": "sequence", "table": "item", "pooling": "mean"},
    {"name": "age", "kind": "numeric"},
    {"name": "tags", "kind": "sequence", "pooling": "sum"},
]
OPTIMIZERS = {"sgd": 0.5, "adagrad": 0.05, "rowwise_adagrad": 0.05, "adam": 0.01}
OTHER_OPTIMIZERS = {(2, 2): "adam", (3, 2): "sgd", (1, 3): "rowwise_adagrad"}
SHAPES = [(servers, workers) for servers in (1, 2, 3) for workers in (1, 2, 3)]


def write_data(folder: Path) -> None:
    """Few ids, so that most stand twice in a share and in the shares of all workers; every kind of missing value."""
    draw = random.Random(1)
    assert sum(FILES.values()) == NUM_STEPS * BATCH_SIZE
    for name, num_rows in FILES.items():
        lines = ["label,user,price,item,history,age,tags"]
        for _ in range(num_rows):
            user, item = draw.randrange(40), draw.randrange(60)
            label = int(draw.random() < 0.2 + 0.5 * ((user + item) % 3 == 0))
            history = "|".join(f"i{draw.randrange(60)}" for _ in range(draw.choice([0, 0, 1, 2, 5])))
            tags = "|".join(f"t{draw.randrange(9)}" for _ in range(draw.choice([0, 1, 3])))
            price = "" if draw.random() < 0.2 else f"{draw.lognormvariate(1, 1):.3f}"
            age = "" if draw.random() < 0.1 else f"{draw.uniform(-1, 1):.3f}"
            user_id = "" if user == 0 else f"u{user}"
            lines.append(f"{label},{user_id},{price},i{item},{history},{age},{tags}")
        (folder / name).write_text("\n".join(lines) + "\n")


def config_of(folder: Path, optimizer: str, group_size: int | str = "auto") -> dict[str, Any]:
    return {
        "name": "same-numbers",
        "features": FEATURES,
        "label": "label",
        "data": {"root": str(folder), "train": list(FILES)},
        "model": {"type": "deepfm", "embedding_dim": 8, "hidden": [16, 8]},
        "training": {
            "passes": 1,
            "batch_size": BATCH_SIZE,
            "dense_optimizer": {"type": "adam", "lr": 0.001},
            "sparse_optimizer": {"type": optimizer, "lr": OPTIMIZERS[optimizer]},
            "seed": 3,
        },
        "sync": {"mode": "sync", "group_size": group_size},
        "heterogeneous": False,  # equal shares: with unlike ones sums round otherwise
    }


class Runs:
    """The final states of all runs. A cluster of each shape is started once, and only if a test asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._states: dict[tuple[int, int], dict[str, State]] = {}
        self._plain: dict[str, one_process.Trained] = {}
        write_data(folder)

    def at(self, servers: int, workers: int) -> dict[str, State]:
        """By name: adagrad, the other optimizer of this shape, `again` (adagrad a second time), `alone` (groups of
        one)."""
        if (servers, workers) not in self._states:
            with TrainingCluster(self._folder, servers, workers) as cluster:
                self._states[servers, workers] = self._train(cluster, servers, workers)
        return self._states[servers, workers]

    def _train(self, cluster: TrainingCluster, servers: int, workers: int) -> dict[str, State]:
        configs = {"adagrad": config_of(self._folder, "adagrad")}
        if other := OTHER_OPTIMIZERS.get((servers, workers)):
            configs[other] = config_of(self._folder, other)
            configs["again"] = configs["adagrad"]
        if (servers, workers) == (2, 3):
            configs["alone"] = config_of(self._folder, "adagrad", group_size=1)
        states = {}
        for name, config in configs.items():
            result = cluster.run(config).result
            assert (result["version"], result["samples"]) == (NUM_STEPS, NUM_STEPS * BATCH_SIZE)
            states[name] = read_state(result["checkpoint"])
        return states

    def plain(self, optimizer: str) -> one_process.Trained:
        """What the plain loop makes of the same run."""
        if optimizer not in self._plain:
            config = parse_config(config_of(self._folder, optimizer), self._folder, (self._folder,))
            self._plain[optimizer] = one_process.train(config, [self._folder / name for name in FILES])
        return self._plain[optimizer]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("same"))


def assert_same(state: State, plain: one_process.Trained) -> None:
    assert set(state.tables) == set(plain.tables) == {"user", "item", "tags"}
    for name, table in plain.tables.items():
        rows = state.tables[name]
        keys = one_process.keys_of(table.ids, name)
        order = np.argsort(keys)
        assert np.array_equal(rows.keys, keys[order])
        assert np.array_equal(rows.statistics[:, 0], table.shows[order])
        assert np.array_equal(rows.statistics[:, 1], table.clicks[order])
        assert np.abs(rows.values - table.values[order]).max() < TOLERANCE, name
    assert [segment.name for segment in state.manifest.segments] == list(plain.dense)
    for name, values in plain.dense.items():
        assert np.abs(state.segment(name) - values).max() < TOLERANCE, name


@pytest.mark.parametrize(("servers", "workers"), SHAPES)
def test_the_cluster_computes_what_one_process_does(runs: Runs, servers: int, workers: int) -> None:
    assert_same(runs.at(servers, workers)["adagrad"], runs.plain("adagrad"))


@pytest.mark.parametrize(("shape", "optimizer"), OTHER_OPTIMIZERS.items())
def test_with_every_optimizer_of_rows(runs: Runs, shape: tuple[int, int], optimizer: str) -> None:
    assert_same(runs.at(*shape)[optimizer], runs.plain(optimizer))


def test_groups_of_one_merge_to_the_same_numbers(runs: Runs) -> None:
    """Three contributions are merged on the servers instead of one."""
    assert_same(runs.at(2, 3)["alone"], runs.plain("adagrad"))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_bit_depends_on_the_number_of_servers(runs: Runs, workers: int) -> None:
    one = runs.at(1, workers)["adagrad"].bits()
    assert one == runs.at(2, workers)["adagrad"].bits()
    assert one == runs.at(3, workers)["adagrad"].bits()


@pytest.mark.parametrize("shape", list(OTHER_OPTIMIZERS))
def test_two_runs_of_one_seed_are_equal_bit_for_bit(runs: Runs, shape: tuple[int, int]) -> None:
    states = runs.at(*shape)
    assert states["again"].bits() == states["adagrad"].bits()


def test_the_comparison_sees_what_it_is_to_see(runs: Runs) -> None:
    """Another optimizer is another result: `assert_same` and `bits` do not pass for anything."""
    states = runs.at(2, 2)
    assert states["adam"].bits() != states["adagrad"].bits()
    with pytest.raises(AssertionError):
        assert_same(states["adam"], runs.plain("adagrad"))
