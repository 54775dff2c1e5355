"""From TakeSnapshot to a restored job, over messages: three servers write, another number goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tier_cluster import DIM, JOB, NUM_DENSE, TierCluster, dense_of, keys_of, pulled, specs, sums_of

from embedding_tier.client import TierClient
from geartrain.checkpoint_layout import BaseCheckpoint
from geartrain.types import Floats
from geartrain.wire.messages import Contribution, DensePlaced, JobOpened, NodeFailed, OpenJob, TakeSnapshot

StartTier = Callable[..., TierCluster]
TABLES = specs("adam", names=("a", "empty"))


def step(tier: TierCluster, version: int, seed: int, **changes: Any) -> None:
    client = tier.client(**changes)
    keys, counts = tier.layout([np.arange(0, 300, 3, dtype=np.uint64), keys_of()])
    push = sums_of(seed, len(keys))
    push.grads = (np.arange(DIM, dtype=np.float32) + 1) * (keys[:, None] % 7).astype(np.float32)
    client.stage(0, version - 1, keys, counts, push)
    tier.apply(version, [Contribution(0, version - 1, ["w0"], 1, 1.0)], term=changes.get("term", 1))


def look(tier: TierCluster, version: int, **changes: Any) -> tuple[Floats, Floats]:
    """Rows in the order of their keys, and the dense vector."""
    client = tier.client(**changes)
    keys, counts = tier.layout([np.arange(300, dtype=np.uint64), keys_of()])
    return pulled(client, keys, counts, version)[np.argsort(keys)], dense_of(client, version)


@pytest.fixture
def saved(start_tier: StartTier, tmp_path: Path) -> tuple[TierCluster, Path]:
    tier = start_tier(num_servers=3, tables=TABLES)
    tier.client().put_dense(np.linspace(0, 1, NUM_DENSE, dtype=np.float32))
    step(tier, 1, 1)
    return tier, tier.take_snapshot(tmp_path / "one", 1)


@pytest.mark.parametrize("num_servers", [1, 2, 5])
def test_the_job_goes_on_with_the_same_bits(
    start_tier: StartTier, saved: tuple[TierCluster, Path], num_servers: int
) -> None:
    tier, directory = saved
    restored = start_tier(num_servers=num_servers, tables=TABLES, restore=str(directory), version=1)
    for before, after in zip(look(tier, 1), look(restored, 1), strict=True):
        np.testing.assert_array_equal(before, after)
    for one in (tier, restored):
        step(one, 2, 2)
    for before, after in zip(look(tier, 2), look(restored, 2), strict=True):
        np.testing.assert_array_equal(before, after)


def test_going_back_to_a_checkpoint_in_a_higher_term(saved: tuple[TierCluster, Path]) -> None:
    tier, directory = saved
    before = look(tier, 1)
    step(tier, 2, 2)
    tier.restore, tier.version = str(directory), 1
    tier.open(term=2)
    for old, new in zip(before, look(tier, 1, term=2), strict=True):
        np.testing.assert_array_equal(old, new)
    step(tier, 2, 2, term=2)


def test_opening_and_placing_again_changes_nothing(saved: tuple[TierCluster, Path]) -> None:
    tier, _ = saved
    before = look(tier, 1)
    tier.open()
    for old, new in zip(before, look(tier, 1), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_damaged_checkpoint_is_refused_and_the_job_not_opened(
    start_tier: StartTier, saved: tuple[TierCluster, Path]
) -> None:
    _, directory = saved
    victim = directory / "table-a.s2.rows"
    victim.write_bytes(victim.read_bytes()[:-4])
    other = start_tier(num_servers=2, tables=TABLES)
    job = other.tiers[0].job
    open_job = OpenJob(2, "next", {}, {}, TABLES, other.route, 1, str(directory))
    for answer in other.broadcast(open_job):
        assert isinstance(answer, NodeFailed)
        assert (answer.job, answer.error["code"]) == ("next", "checkpoint_invalid")
        assert answer.error["file"] == str(victim)
    assert other.tiers[0].job is job


def test_a_snapshot_of_another_version_or_an_unknown_folder_is_refused(
    saved: tuple[TierCluster, Path],
) -> None:
    tier, directory = saved
    for message in (TakeSnapshot(1, 6, 2, str(directory)), TakeSnapshot(1, 6, 1, str(directory / "nowhere"))):
        for answer in tier.broadcast(message):
            assert isinstance(answer, NodeFailed)
            assert answer.error["code"] in ("version_unavailable", "checkpoint_invalid")


def test_a_delta_goes_on_with_the_same_bits(start_tier: StartTier, saved: tuple[TierCluster, Path]) -> None:
    tier, directory = saved
    base = BaseCheckpoint(directory.name, JOB, 1, 1)
    step(tier, 2, 2)
    delta = tier.take_snapshot(directory.with_name("two"), 2, base)
    restored = start_tier(num_servers=2, tables=TABLES, restore=str(delta), version=2)
    for one in (tier, restored):
        step(one, 3, 3)
    for before, after in zip(look(tier, 3), look(restored, 3), strict=True):
        np.testing.assert_array_equal(before, after)


def test_saved_while_three_workers_push_new_ids(start_tier: StartTier, tmp_path: Path) -> None:
    """Windows go on to be applied while the files are written: they hold the version that was asked for, all of it."""
    quiet, busy = start_tier(num_servers=3, tables=TABLES), start_tier(num_servers=3, tables=TABLES)

    def window(tier: TierCluster, version: int, clients: list[TierClient]) -> None:
        contributions = []
        for group, client in enumerate(clients):
            ids = np.arange(2000, dtype=np.uint64) * np.uint64(3) + np.uint64(1000 * version + group)
            keys, counts = tier.layout([ids, ids])
            dense = (0, NUM_DENSE)
            client.stage(group, version - 1, keys, counts, sums_of(version + group, len(keys), dense))
            contributions.append(Contribution(group, version - 1, [f"w{group}"], 1, 1.0))
        tier.apply(version, contributions, divisor=3.0, live_groups=[0, 1, 2])

    clients = {}
    for tier in (quiet, busy):
        clients[id(tier)] = [tier.client(worker=f"w{group}") for group in range(3)]
        tier.client().put_dense(np.linspace(0, 1, NUM_DENSE, dtype=np.float32))
        for version in (1, 2):
            window(tier, version, clients[id(tier)])
    busy.begin_snapshot(tmp_path / "busy", 2)
    for version in range(3, 8):
        window(busy, version, clients[id(busy)])
    saved = [busy.end_snapshot(tmp_path / "busy", 2), quiet.take_snapshot(tmp_path / "quiet", 2)]
    for file in saved[0].glob("*.s?.*"):
        assert file.read_bytes() == (saved[1] / file.name).read_bytes(), file.name

    restored = start_tier(num_servers=2, tables=TABLES, restore=str(saved[0]), version=2)
    others = [restored.client(worker=f"w{group}") for group in range(3)]
    for version in (3, 4):
        window(restored, version, others)
        window(quiet, version, clients[id(quiet)])
    for before, after in zip(look(quiet, 4), look(restored, 4), strict=True):
        np.testing.assert_array_equal(before, after)


def test_answers_to_opening_name_node_term_and_job(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=2)
    opened = tier.broadcast(OpenJob(3, "next", {}, {}, TABLES, tier.route, 0))
    assert opened == [JobOpened(name, 3, "next", []) for name in tier.names]
    assert JOB != "next"
    strange = OpenJob(4, "other", {}, {}, TABLES, type(tier.route)(1, ["s7"], ["x"], [0] * 1024), 0)
    assert all(isinstance(answer, NodeFailed) for answer in tier.broadcast(strange))
    assert DensePlaced("s0", 1, JOB) not in opened
