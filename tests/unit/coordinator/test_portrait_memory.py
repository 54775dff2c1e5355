"""Portraits that outlive their job: for the same device and the same work, and for nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from card_support import Card, book_of
from scripted_nodes import job_config

from coordinator.commands import SavePortrait
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
    return memory, memory.remember(CONFIG, NODES, PORTRAITS)


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
    assert memory.remember(CONFIG, [*NODES, node("w2")], {"w0": PORTRAITS["w0"]})[0].record["worker"] == "w0"
    assert memory.known(CONFIG, [*NODES, node("w2")]) == {"w0": PORTRAITS["w0"]}
    later = replace(PORTRAITS["w0"], cost=PORTRAITS["w0"].cost.scaled(2.0), source="steps")
    memory.remember(CONFIG, NODES, {"w0": later})
    assert memory.known(CONFIG, NODES) == {"w0": later}


def test_a_record_that_is_no_portrait_is_refused() -> None:
    with pytest.raises(WireError, match="a portrait cannot be read"):
        PortraitMemory({"key": {"worker": "w0"}})


def test_a_speed_that_was_set_before_any_measurement_is_shown_as_that() -> None:
    portrait = unmeasured("w3", DEVICE, 2500.0, 100.0)
    assert (portrait.source, portrait.num_probes, portrait.emulated) == ("set", 0, True)
    assert portrait.samples_per_s == 2500.0
    assert "2500 samples/s by a person" in portrait.reason
    assert Portrait.from_dict(json.loads(json.dumps(portrait.to_dict(), allow_nan=False))) == portrait
