"""Portraits that outlive their job: for the same device and the same work, and for nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from card_support import Card, book_of
from hypothesis import given
from hypothesis import strategies as st
from scripted_nodes import job_config

from coordinator import portrait_memory
from coordinator.commands import ForgetPortraits, SavePortrait
from coordinator.membership import Node
from coordinator.portrait import Portrait
from coordinator.portrait_memory import PortraitMemory, unmeasured
from geartrain.errors import WireError

DEVICE = "emulate:name=V100,samples_per_s=3000"


def node(name: str, device: str = DEVICE, host: str = "here") -> Node:
    return Node(name, "worker", host, device, "ipc://w", 7, 0.0, "joined", "")


NODES = [node("w0"), node("w1", "cpu")]
PORTRAITS = book_of({"w0": Card(3000, "V100"), "w1": Card(500, "cpu", "cpu")}).portraits()
CONFIG = job_config()


def remembering() -> tuple[PortraitMemory, list[SavePortrait]]:
    memory = PortraitMemory({})
    return memory, saves_of(memory.remember(CONFIG, NODES, PORTRAITS))


def saves_of(commands: Iterable[SavePortrait | ForgetPortraits]) -> list[SavePortrait]:
    return [one for one in commands if isinstance(one, SavePortrait)]


def test_the_same_devices_are_known_for_the_same_work() -> None:
    memory, saves = remembering()
    assert memory.known(CONFIG, NODES) == PORTRAITS
    assert [Portrait.from_dict(one.record) for one in saves] == [PORTRAITS["w0"], PORTRAITS["w1"]]
    assert len({one.key for one in saves}) == 2


def test_what_was_saved_is_known_to_the_next_coordinator() -> None:
    _, saves = remembering()
    stored = json.loads(json.dumps({one.key: one.record for one in saves}, allow_nan=False))
    assert PortraitMemory(stored).known(CONFIG, NODES) == PORTRAITS


@pytest.mark.parametrize(
    "stranger",
    [
        node("w0", "emulate:name=V100,samples_per_s=2000"),
        node("w0", host="there"),
        node("w1"),
    ],
    ids=["another card", "another host", "another place"],
)
def test_another_device_is_not_known(stranger: Node) -> None:
    memory, _ = remembering()
    assert memory.known(CONFIG, [stranger]) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "deepfm", "embedding_dim": 4, "hidden": [2]}},
        {"features": [{"name": "user", "kind": "categorical"}, {"name": "item", "kind": "categorical"}]},
        {"training": {"passes": 2, "batch_size": 8, "precision": "bf16"}},
        {"training": {"passes": 2, "batch_size": 16}},
        {"compression": {"embedding": "fp16"}},
        {"tables": {"default": {"row_dtype": "fp16"}}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_work_costs_something_else(changes: dict[str, Any]) -> None:
    memory, _ = remembering()
    assert memory.known(job_config(**changes), NODES) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"training": {"passes": 9, "batch_size": 8, "seed": 5}},
        {"sync": {"mode": "async"}},
        {"heterogeneous": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_does_not_change_the_work_of_a_step_does_not_matter(changes: dict[str, Any]) -> None:
    memory, _ = remembering()
    assert memory.known(job_config(**changes), NODES) == PORTRAITS


def test_only_workers_with_a_portrait_are_remembered_and_the_latest_one_counts() -> None:
    memory = PortraitMemory({})
    (saved,) = saves_of(memory.remember(CONFIG, [*NODES, node("w2")], {"w0": PORTRAITS["w0"]}))
    assert saved.record["worker"] == "w0"
    assert memory.known(CONFIG, [*NODES, node("w2")]) == {"w0": PORTRAITS["w0"]}
    later = replace(PORTRAITS["w0"], cost=PORTRAITS["w0"].cost.scaled(2.0), source="steps")
    memory.remember(CONFIG, NODES, {"w0": later})
    assert memory.known(CONFIG, NODES) == {"w0": later}


@given(
    st.integers(1, 5),
    st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 50), max_size=4), max_size=12),
    st.integers(0, 12),
)
def test_a_store_never_holds_more_than_its_bound_and_the_oldest_leave_first(
    bound: int, jobs: list[dict[int, int]], restart_at: int
) -> None:
    """`jobs`: of each, when the portraits of its workers were measured. The coordinator is restarted once."""
    memory, stored = PortraitMemory({}), dict[str, dict[str, Any]]()
    newest: dict[int, int] = {}
    nodes = [node(f"w{number}") for number in range(10)]
    with patch.object(portrait_memory, "MAX_KEPT", bound):
        for place, measured in enumerate(jobs):
            if place == restart_at:
                memory = PortraitMemory(stored)
            portraits = {
                f"w{number}": replace(PORTRAITS["w0"], worker=f"w{number}", measured_at=float(at))
                for number, at in measured.items()
            }
            apply(memory.remember(CONFIG, nodes, portraits), stored)
            newest |= measured
            kept = {int(record["worker"][1:]) for record in stored.values()}
            assert len(stored) == min(bound, len(newest)) == len(kept)
            assert memory.known(CONFIG, nodes) == {one["worker"]: Portrait.from_dict(one) for one in stored.values()}
            left = newest.keys() - kept
            assert max((newest[number] for number in left), default=0) <= min(
                (newest[number] for number in kept), default=0
            )
            for number in left:
                del newest[number]


def apply(commands: Iterable[SavePortrait | ForgetPortraits], stored: dict[str, dict[str, Any]]) -> None:
    """What the shell does to the store."""
    for command in commands:
        if isinstance(command, SavePortrait):
            stored[command.key] = command.record
        else:
            for key in command.keys:
                del stored[key]


def test_a_store_that_has_outgrown_its_bound_is_cut_at_the_next_job() -> None:
    _, saves = remembering()
    with patch.object(portrait_memory, "MAX_KEPT", 1):
        memory = PortraitMemory({one.key: one.record for one in saves})
        forgotten = memory.remember(CONFIG, NODES, {})
    assert forgotten == [ForgetPortraits((min(one.key for one in saves),))]  # both are of one time
    assert len(memory.known(CONFIG, NODES)) == 1


def test_a_record_that_is_no_portrait_is_refused() -> None:
    with pytest.raises(WireError, match="a portrait cannot be read"):
        PortraitMemory({"key": {"worker": "w0"}})


def test_a_speed_that_was_set_before_any_measurement_is_shown_as_that() -> None:
    portrait = unmeasured("w3", DEVICE, 2500.0, 100.0)
    assert (portrait.source, portrait.num_probes, portrait.emulated) == ("set", 0, True)
    assert portrait.samples_per_s == 2500.0
    assert "2500 samples/s by a person" in portrait.reason
    assert Portrait.from_dict(json.loads(json.dumps(portrait.to_dict(), allow_nan=False))) == portrait
