"""Every sample of every pass is applied exactly once, in every mode, whatever the shapes of files, groups and tails."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from trained_state import read_state
from training_cluster import Ended, TrainingCluster

from coordinator.conservation import ConservationReport, prove_conservation
from coordinator.journal import Arrived, Decided, GroupsChanged, PassEnded
from coordinator.journal_file import read_journal
from geartrain.errors import ConflictError, ConservationError, NotFoundError

BATCH_SIZE = 60
FILES = {"seven.csv": 7 * BATCH_SIZE, "three.csv": 3 * BATCH_SIZE + 23}
"""7 batches, 3 batches and a ragged tail."""
NUM_ROWS = sum(FILES.values())
PASSES = 2

MODES = ("sync", "hybrid", "async")
GROUPS = (3, 1)
DEPTHS = (0, 1)
SETTINGS = list(product(MODES, GROUPS, DEPTHS))


@pytest.fixture(scope="module", autouse=True)
def data(cluster: TrainingCluster) -> None:
    draw = random.Random(2)
    folder = cluster.folder / "conservation"
    folder.mkdir()
    for name, num_rows in FILES.items():
        rows = (f"{draw.randrange(2)},u{draw.randrange(30)},i{draw.randrange(50)}" for _ in range(num_rows))
        (folder / name).write_text("\n".join(["label,user,item", *rows]) + "\n")


def config_of(mode: str, group_size: int, depth: int) -> dict[str, Any]:
    return {
        "name": "conservation",
        "features": [{"name": "user", "kind": "categorical"}, {"name": "item", "kind": "categorical"}],
        "label": "label",
        "data": {"root": "conservation", "train": list(FILES), "valid": ["three.csv"]},
        "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [8]},
        "training": {
            "passes": PASSES,
            "batch_size": BATCH_SIZE,
            "sparse_optimizer": {"type": "adagrad", "lr": 0.05},
            "seed": 7,
        },
        "sync": {"mode": mode, "group_size": group_size, "pipeline_depth": depth},
        "heterogeneous": False,
    }


class Runs:
    """One run of each setting, on first demand."""

    def __init__(self, cluster: TrainingCluster) -> None:
        self._cluster = cluster
        self._ended: dict[tuple[str, int | str, int], Ended] = {}

    def of(self, mode: str, group_size: int, depth: int) -> Ended:
        setting = (mode, group_size, depth)
        if setting not in self._ended:
            self._ended[setting] = self.fresh(*setting)
        return self._ended[setting]

    def fresh(self, mode: str, group_size: int, depth: int) -> Ended:
        return self._cluster.run(config_of(mode, group_size, depth))


@pytest.fixture(scope="module")
def runs(cluster: TrainingCluster) -> Runs:
    return Runs(cluster)


@pytest.mark.parametrize(("mode", "group_size", "depth"), SETTINGS)
def test_every_sample_is_applied_once_per_pass(runs: Runs, mode: str, group_size: int, depth: int) -> None:
    ended = runs.of(mode, group_size, depth)
    report = prove_conservation(ended.journal, NUM_ROWS, PASSES)
    assert report == ConservationReport(
        samples_applied=NUM_ROWS * PASSES,
        samples_skipped=0,
        versions=ended.result["version"],
        first_pass=0,
        num_passes=PASSES,
    )


@pytest.mark.parametrize(("mode", "group_size", "depth"), SETTINGS)
def test_the_result_agrees_with_the_journal(runs: Runs, mode: str, group_size: int, depth: int) -> None:
    ended = runs.of(mode, group_size, depth)
    result = ended.result
    decisions = [entry for entry in ended.journal if isinstance(entry, Decided)]
    arrivals = [entry for entry in ended.journal if isinstance(entry, Arrived)]
    (groups,) = (entry for entry in ended.journal if isinstance(entry, GroupsChanged))
    assert result["passes"] == PASSES
    assert result["samples"] == NUM_ROWS * PASSES == sum(worker["samples"] for worker in result["workers"])
    assert result["samples_skipped"] == 0
    assert result["version"] == decisions[-1].version == len(decisions)
    assert result["groups"] == list(groups.groups.values())
    assert [len(group) for group in result["groups"]] == ([3] if group_size == 3 else [1, 1, 1])
    assert result["staleness"]["histogram"] == _staleness(arrivals, decisions, depth)
    assert result["valid"] == next(entry for entry in reversed(ended.journal) if isinstance(entry, PassEnded)).metrics
    if mode == "sync" or group_size == 3:
        assert set(result["staleness"]["histogram"]) == {"0"}, "nothing is stale where all wait for all"


def _staleness(arrivals: list[Arrived], decisions: list[Decided], depth: int) -> dict[str, int]:
    """The histogram of a result, from the versions in the journal."""
    built_on = {(entry.group, entry.step): entry.version for entry in arrivals}
    histogram: dict[str, int] = {}
    for decision in decisions:
        for step in decision.steps:
            staleness = str(max(0, decision.version - 1 - built_on[step] - depth))
            histogram[staleness] = histogram.get(staleness, 0) + 1
    return dict(sorted(histogram.items(), key=lambda one: int(one[0])))


@pytest.mark.parametrize("depth", DEPTHS)
def test_with_one_group_every_mode_is_synchronous_training(runs: Runs, depth: int) -> None:
    sync, hybrid, asynchronous = (read_state(runs.of(mode, 3, depth).result["checkpoint"]).bits() for mode in MODES)
    assert sync == hybrid == asynchronous


@pytest.mark.parametrize("group_size", GROUPS)
def test_sync_at_depth_1_is_reproducible(runs: Runs, group_size: int) -> None:
    first, second = runs.of("sync", group_size, 1), runs.fresh("sync", group_size, 1)
    assert read_state(first.result["checkpoint"]).bits() == read_state(second.result["checkpoint"]).bits()


def test_depth_1_builds_on_the_version_before(runs: Runs) -> None:
    """So the two depths are different runs, and every step at depth 1 builds exactly on what depth 1 means."""
    built_on = {
        depth: [entry.version for entry in runs.of("sync", 3, depth).journal if isinstance(entry, Arrived)]
        for depth in DEPTHS
    }
    steps = -(-NUM_ROWS // BATCH_SIZE)
    first_pass = {depth: versions[:steps] for depth, versions in built_on.items()}
    assert first_pass[0] == list(range(steps))
    assert first_pass[1] == [max(0, step - 1) for step in range(steps)]


def test_a_lost_decision_is_seen(runs: Runs) -> None:
    journal = runs.of("sync", 3, 0).journal
    last = next(entry for entry in reversed(journal) if isinstance(entry, Decided))
    with pytest.raises(ConflictError, match="ends with undecided steps"):
        prove_conservation([entry for entry in journal if entry is not last], NUM_ROWS, PASSES)
    with pytest.raises(ConservationError, match=f"positions {NUM_ROWS} to {NUM_ROWS + 1} of pass 0"):
        prove_conservation(journal, NUM_ROWS + 1, PASSES)
    with pytest.raises(ConservationError, match="of pass 2"):
        prove_conservation(journal, NUM_ROWS, PASSES + 1)


def test_a_journal_is_asked_for_by_folder_and_job(cluster: TrainingCluster, runs: Runs) -> None:
    ended = runs.of("sync", 3, 0)
    assert read_journal(cluster.folder / "state", ended.job["id"]) == ended.journal
    with pytest.raises(NotFoundError, match="no journal of job 'another'"):
        read_journal(cluster.folder / "state", "another")
    with pytest.raises(NotFoundError, match="no state folder"):
        read_journal(cluster.folder / "output", ended.job["id"])
    assert not list((cluster.folder / "output").glob("*.sqlite"))
