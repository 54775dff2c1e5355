"""Training goes on while a cut is written: it is of the version at which it began. The job waits for its last one."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator import journal
from coordinator.commands import Command, CutFilesDone, PublishCut
from coordinator.conservation import prove_conservation
from coordinator.replay import replay
from geartrain.wire import messages as wire


class SlowDisks(ScriptedNodes):
    """Servers whose snapshots take until `release`, or for ever; `begins` is False for one that does not even begin."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.held: list[wire.SnapshotTaken] = []
        self.slow = True
        self.begins = True

    def _answer(self, message: wire.FromNode) -> None:
        if isinstance(message, wire.SnapshotBegun) and not self.begins:
            return
        if isinstance(message, wire.SnapshotTaken) and self.slow:
            self.held.append(message)
        else:
            super()._answer(message)

    def release(self) -> None:
        for message in self.held:
            super()._answer(message)
        self.held.clear()


def kinds(nodes: ScriptedNodes) -> list[str]:
    return [type(entry).__name__ for entry in nodes.entries]


def test_the_next_pass_is_trained_while_a_cut_is_written() -> None:
    nodes = SlowDisks()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: kinds(nodes).count("PassEnded") == 2)
    assert nodes.cuts == [] and len(nodes.held) == 2
    nodes.run()
    # The second cut waits for the first one.
    assert kinds(nodes).count("CutBegun") == 1 and nodes.core.jobs.job(job).state == "evaluating"
    nodes.release()
    nodes.run(until=lambda: len(nodes.held) == 2)
    (first,) = nodes.cuts
    assert (first.manifest["version"], first.manifest["passes_done"], first.manifest["samples"]) == (7, 1, 50)
    assert sorted(first.manifest["files"]) == ["rows.s0", "rows.s1"]
    # And the job for the second; its test files are scored meanwhile.
    nodes.run()
    assert nodes.core.jobs.job(job).state == "evaluating"
    assert [message.split for _, message in nodes.sent if isinstance(message, wire.Evaluate)][-1] == "test"
    nodes.release()
    nodes.run()
    assert nodes.core.jobs.job(job).state == "succeeded"
    assert [cut.manifest["version"] for cut in nodes.cuts] == [7, 14]
    assert kinds(nodes)[-2:] == ["Cut", "JobEnded"]
    assert prove_conservation(nodes.entries, num_rows=50, num_passes=2).samples_applied == 100


def test_a_return_to_a_cut_finds_exactly_what_it_holds() -> None:
    """The journal places a cut where it began, not where it was complete."""
    nodes = SlowDisks()
    nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version == 10)
    nodes.release()
    nodes.run(until=lambda: "Cut" in kinds(nodes))
    state = replay([*nodes.entries, journal.RolledBack(9, 7, "server s0 died")])
    assert (state.version, state.passes_done, state.samples_applied, state.pass_index) == (7, 1, 50, None)
    assert list(state.cuts) == [7]


def test_no_window_is_decided_before_all_servers_have_begun() -> None:
    nodes = SlowDisks()
    nodes.begins = False
    nodes.submit(job_config(), data_index())
    nodes.run()
    assert kinds(nodes)[-1] == "CutBegun" and nodes.core.run is not None
    assert nodes.core.run.view.version == 7
    nodes.begins = True
    nodes.pass_time(5.0)  # asked again, they say so
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version == 10)


@pytest.mark.parametrize("lost", [wire.TakeSnapshot, wire.SnapshotBegun, wire.SnapshotTaken])
def test_a_message_that_is_lost_is_sent_again(lost: type) -> None:
    class Losing(ScriptedNodes):
        def _answer(self, message: wire.FromNode) -> None:
            if type(message) in self.lose_next:
                self.lose_next.discard(type(message))
            else:
                super()._answer(message)

        def _take_snapshot(self, node: str, asked: wire.TakeSnapshot) -> None:
            if (node, asked.term, asked.snapshot) in self._snapshots:  # done since
                super()._answer(
                    wire.SnapshotTaken(node, asked.term, asked.snapshot, {f"rows.{node}": {"kind": "full"}})
                )
            super()._take_snapshot(node, asked)

    nodes = Losing()
    nodes.lose_next = {lost}
    job = nodes.submit(job_config(), data_index())
    for _ in range(3):
        nodes.run()
        nodes.pass_time(5.0)
    assert nodes.core.jobs.job(job).state == "succeeded"
    assert [sorted(cut.manifest["files"]) for cut in nodes.cuts] == [["rows.s0", "rows.s1"]] * 2


def test_a_server_that_writes_on_and_on_is_waited_for_a_mute_one_is_not() -> None:
    nodes = SlowDisks()
    job = nodes.submit(job_config(), data_index())
    nodes.run()
    for _ in range(200):  # a thousand seconds; asked again, the servers say that they are at it
        nodes.pass_time(5.0)
        nodes.run()
    assert nodes.core.jobs.job(job).state == "evaluating"
    nodes.never_answer = {"s1"}
    for _ in range(200):
        nodes.pass_time(5.0)
        nodes.run()
    error = nodes.core.records[job].error
    assert error is not None
    assert (error["code"], error["role"]) == ("deadline_exceeded", "s1")


@pytest.mark.parametrize("waits_for", ["training", "the last cut"])
def test_a_snapshot_that_fails_ends_the_job(waits_for: str) -> None:
    nodes = SlowDisks()
    job = nodes.submit(job_config(), data_index())
    if waits_for == "training":
        nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version == 10)
    else:
        nodes.run()
    error = {"code": "checkpoint_invalid", "message": "rows cannot be written: No space left on device"}
    nodes.message(wire.NodeFailed("s1", nodes.core.term, job, error))
    nodes.run()
    assert nodes.core.jobs.job(job).state == "failed"
    assert nodes.core.records[job].error == error
    assert nodes.cuts == []


def test_going_back_to_the_best_pass_waits_for_the_last_cut() -> None:
    """Opening a checkpoint would end what the servers still write."""
    nodes = SlowDisks()
    nodes.slow = False
    nodes.aucs = [0.9, 0.1, 0.2, 0.8]
    stopping = {"metric": "auc", "patience": 2}
    job = nodes.submit(job_config(training={"passes": 9, "batch_size": 50, "early_stopping": stopping}), data_index())
    nodes.run(until=lambda: len(nodes.cuts) == 2)
    nodes.slow = True
    nodes.run()
    assert (len(nodes.held), nodes.core.term) == (2, 2)
    nodes.release()
    nodes.run()
    result = nodes.core.records[job].result
    assert result is not None and nodes.core.term == 3
    assert (result["best_version"], result["checkpoint"]) == (1, "/out/checkpoints/pass-0001-version-00000001")
    assert len(nodes.cuts) == 3


def test_a_cancelled_job_publishes_nothing_more() -> None:
    nodes = SlowDisks()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version == 10)
    nodes.deliver(nodes.core.cancel(job, nodes.now_s))
    nodes.release()
    nodes.run()
    assert nodes.core.jobs.job(job).state == "cancelled" and nodes.cuts == []


def test_deltas_and_what_they_build_on() -> None:
    nodes = ScriptedNodes()
    training = {"passes": 5, "batch_size": 50}
    nodes.submit(job_config(training=training, checkpoint={"keep": 1, "full_every": 3}), data_index())
    nodes.run()
    asked = [message.base for node, message in nodes.sent if node == "s0" and isinstance(message, wire.TakeSnapshot)]
    assert asked == [None, 1, 1, None, 4]
    bases = [cut.manifest["base"] for cut in nodes.cuts]
    first = {"checkpoint": "pass-0001-version-00000001", "job": "job0", "term": 2, "version": 1}
    assert bases == [None, first, first, None, {**first, "checkpoint": "pass-0004-version-00000004", "version": 4}]
    expired = [[path.name[:9] for path in cut.expired] for cut in nodes.cuts]
    assert expired == [[], [], ["pass-0002"], ["pass-0003", "pass-0001"], []]


def test_a_disk_that_fails_at_the_end_fails_the_job() -> None:
    class Full(ScriptedNodes):
        def deliver(self, commands: list[Command]) -> None:
            kept = [command for command in commands if not isinstance(command, PublishCut)]
            for command in commands:
                if isinstance(command, PublishCut):
                    error = {"code": "checkpoint_invalid", "message": "disk full"}
                    self._answer_shell(CutFilesDone(command.job, error))
            super().deliver(kept)

    nodes = Full()
    job = nodes.submit(job_config(), data_index())
    nodes.run()
    assert nodes.core.jobs.job(job).reason == "disk full"
