"""Decisions tell on which versions the passes began, as far as tables look back; a restore changes nothing of it."""

from __future__ import annotations

from typing import Any

import msgspec
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator import journal
from coordinator.checkpoints import Manifest
from coordinator.plan import Task
from coordinator.replay import replay
from geartrain.wire import messages as wire

SEVEN_STEPS = {"batch_size": 8}  # of 50 rows


def trained(passes: int, expiry: dict[str, Any], **resumed: Any) -> ScriptedNodes:
    nodes = ScriptedNodes()
    config = job_config(training={"passes": passes, **SEVEN_STEPS}, tables={"user": {"expiry": expiry}})
    nodes.submit(config, data_index(), **resumed)
    nodes.run()
    return nodes


def told(nodes: ScriptedNodes) -> dict[int, list[int]]:
    """What the decisions to one server told, by version."""
    return {one.version: one.pass_versions for node, one in nodes.sent if isinstance(one, wire.Apply) and node == "s0"}


def manifest_of(nodes: ScriptedNodes, pass_index: int) -> Manifest:
    return msgspec.convert(nodes.cuts[pass_index].manifest, Manifest)


def test_as_many_beginnings_are_told_as_a_table_looks_back_to() -> None:
    by_version = told(trained(4, {"type": "unseen", "passes": 2}))
    assert len(by_version) == 28
    assert [by_version[version] for version in (1, 7, 8, 15, 22, 28)] == [
        [0],
        [0],
        [0, 7],
        [0, 7, 14],
        [7, 14, 21],
        [7, 14, 21],
    ]


def test_nothing_is_told_where_no_table_looks_back() -> None:
    for expiry in ({"type": "never"}, {"type": "unseen", "versions": 9}, {"type": "score"}):
        assert set(map(tuple, told(trained(2, expiry)).values())) == {()}


def test_a_resumed_run_tells_the_same() -> None:
    expiry = {"type": "unseen", "passes": 2}
    whole = trained(4, expiry)
    for done in (1, 2, 3):
        manifest = manifest_of(whole, done - 1)
        assert manifest.pass_versions == [0, 7, 14][:done]
        rest = trained(4, expiry, task=Task("train", "/out/cut", "resume"), manifest=manifest)
        assert told(rest) == {version: told(whole)[version] for version in range(7 * done + 1, 29)}
        assert manifest_of(rest, -1).pass_versions == [0, 7, 14, 21]


def test_a_run_that_only_takes_the_parameters_begins_anew() -> None:
    expiry = {"type": "unseen", "passes": 1}
    manifest = manifest_of(trained(2, expiry), 1)
    again = trained(2, expiry, task=Task("train", "/out/cut", "init_from"), manifest=manifest)
    assert (told(again)[1], told(again)[8]) == ([0], [0, 7])


def test_the_journal_alone_tells_them_to_a_coordinator_that_starts() -> None:
    whole = trained(3, {"type": "unseen", "passes": 1})
    assert replay(whole.entries).pass_versions == [0, 7, 14]
    resumed = trained(
        4,
        {"type": "unseen", "passes": 1},
        task=Task("train", "/out/cut", "resume"),
        manifest=manifest_of(whole, 2),
    )
    assert replay(resumed.entries).pass_versions == [0, 7, 14, 21]
    back = journal.RolledBack(resumed.entries[-1].term + 1, 21, "a server died")
    again = journal.PassOpened(back.term, 3, 50)
    ended = [one for one in resumed.entries if not isinstance(one, journal.JobEnded)]
    assert replay([*ended, back]).pass_versions == [0, 7, 14]
    assert replay([*ended, back, again]).pass_versions == [0, 7, 14, 21]
