"""A mode that is set while a job trains: its groups are then those of a job that begins with that mode."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator import adjusting, journal
from coordinator.conservation import prove_conservation

SPEEDS = {f"w{number}": 3000.0 if number < 3 else 1000.0 for number in range(6)}
ROWS = 70 * 60


def training(mode: str, heterogeneous: bool = True, seed: int = 0, rows: int = ROWS, **sync: Any) -> ScriptedNodes:
    """A job on two kinds of cards that has trained for a while."""
    nodes = ScriptedNodes(num_workers=len(SPEEDS), seed=seed)
    nodes.speeds = dict(SPEEDS)
    nodes.models = {worker: f"card{speed:g}" for worker, speed in SPEEDS.items()}
    fields = {
        "heterogeneous": heterogeneous,
        "training": {"passes": 1, "batch_size": 70},
        "sync": {"mode": mode, "window_ms": 5, **sync},
    }
    nodes.submit(job_config(**fields), data_index(train=rows))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 5)
    return nodes


def members(nodes: ScriptedNodes) -> list[tuple[str, ...]]:
    assert nodes.core.run is not None
    return sorted(spec.members for spec in nodes.core.run.view.groups)


def put(nodes: ScriptedNodes, mode: str) -> None:
    nodes.deliver(adjusting.change_window(nodes.core, {"mode": mode}, nodes.now_s))


def train_on(nodes: ScriptedNodes, windows: int) -> None:
    assert nodes.core.run is not None
    version = nodes.core.run.view.version
    nodes.run(lambda: nodes.core.run is None or nodes.core.run.view.version >= version + windows)
    assert nodes.core.run is not None, "the job has ended before that"


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("heterogeneous", [True, False], ids=["matched", "equal shares"])
@pytest.mark.parametrize(("before", "after"), list(permutations(["sync", "async", "hybrid"], 2)))
def test_the_groups_are_those_of_a_job_that_begins_so(before: str, after: str, heterogeneous: bool, depth: int) -> None:
    nodes = training(before, heterogeneous, pipeline_depth=depth)
    begun_so = members(training(after, heterogeneous))
    changes = members(nodes) != begun_so
    put(nodes, after)
    train_on(nodes, 10)
    assert members(nodes) == begun_so
    reasons = [entry.reason for entry in nodes.entries if isinstance(entry, journal.GroupsChanged)]
    assert [reason.startswith(f"sync.mode is now {after}: ") for reason in reasons] == [False, *[True] * changes]
    nodes.run()
    ids = [group for entry in nodes.entries if isinstance(entry, journal.GroupsChanged) for group in entry.groups]
    assert len(ids) == len(set(ids)), "no id stands for two memberships"
    prove_conservation(nodes.entries, ROWS, 1)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_put_to_sync_keeps_one_membership(seed: int) -> None:
    nodes = training("hybrid", seed=seed, rows=70 * 300)
    assert members(nodes) == [("w0", "w1", "w2"), ("w3", "w4", "w5")]
    put(nodes, "sync")
    train_on(nodes, 10)
    assert members(nodes) == [tuple(SPEEDS)]
    nodes.speeds["w0"] = 1000.0  # in hybrid mode it would go to the other group
    train_on(nodes, 150)
    assert members(nodes) == [tuple(SPEEDS)]
    nodes.run()
    prove_conservation(nodes.entries, 70 * 300, 1)


@pytest.mark.parametrize("heterogeneous", [True, False])
def test_a_group_size_set_by_hand_stays(heterogeneous: bool) -> None:
    nodes = training("hybrid", heterogeneous, group_size=2)
    before = members(nodes)
    for mode in ("async", "sync"):
        put(nodes, mode)
        train_on(nodes, 5)
        assert members(nodes) == before


def test_a_mode_that_is_taken_back_at_once_changes_nothing() -> None:
    nodes = training("hybrid")
    before = members(nodes)
    put(nodes, "async")
    put(nodes, "hybrid")
    train_on(nodes, 10)
    assert members(nodes) == before
    assert sum(isinstance(entry, journal.GroupsChanged) for entry in nodes.entries) == 1


@pytest.mark.parametrize("heterogeneous", [True, False])
def test_the_ids_of_the_next_job_are_new(heterogeneous: bool) -> None:
    nodes = training("hybrid", heterogeneous)
    put(nodes, "async")
    nodes.run()
    used = {group for entry in nodes.entries if isinstance(entry, journal.GroupsChanged) for group in entry.groups}
    num_entries = len(nodes.entries)
    nodes.submit(job_config(), data_index(train=16))
    nodes.run()
    later = [entry for entry in nodes.entries[num_entries:] if isinstance(entry, journal.GroupsChanged)]
    assert later and not used & {group for entry in later for group in entry.groups}
