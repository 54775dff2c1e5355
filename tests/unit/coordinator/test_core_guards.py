"""What must not end a job or a coordinator: nodes that the job does not need, messages of the wrong node."""

from __future__ import annotations

import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator.commands import Command
from coordinator.membership import Lost, Membership, NodeRefused
from coordinator.plan import JobPlan
from geartrain.errors import WireError
from geartrain.wire import messages as wire


def in_training(nodes: ScriptedNodes) -> str:
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: any(isinstance(message, wire.Grant) for _, message in nodes.sent))
    return job


def test_a_node_that_came_after_the_start_may_go_again() -> None:
    nodes = ScriptedNodes()
    job = in_training(nodes)
    nodes.register("w9")
    spare = nodes.core.members.node("w9", 109)
    nodes.deliver(nodes.core.members_lost(Lost(spare, "stopped by hand"), nodes.now_s))
    nodes.run()
    assert nodes.core.jobs.job(job).state == "succeeded"


def test_a_worker_that_confirms_a_window_ends_the_job_not_the_coordinator() -> None:
    nodes = ScriptedNodes()
    job = in_training(nodes)
    assert nodes.core.run is not None
    nodes.message(wire.Applied("w0", 100, nodes.core.run.term, 1))
    assert nodes.core.records[job].error is not None
    assert nodes.core.records[job].error["code"] == WireError.code
    nodes.run()
    second = nodes.submit(job_config(), data_index())
    nodes.run()
    assert nodes.core.jobs.job(second).state == "succeeded"


def test_a_fault_of_ours_in_a_run_ends_the_job_not_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = ScriptedNodes()
    job = in_training(nodes)
    run = nodes.core.run
    assert run is not None

    def broken(event: object, now_s: float) -> list[Command]:
        raise KeyError("a fault")

    monkeypatch.setattr(run, "handle", broken)
    nodes.run()
    assert nodes.core.records[job].error == {"code": "internal", "message": "the run failed: KeyError('a fault')"}
    assert "Traceback" in caplog.text
    second = nodes.submit(job_config(), data_index())
    nodes.run()
    assert nodes.core.jobs.job(second).state == "succeeded"


def test_a_job_that_cannot_be_planned_fails_and_the_next_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = ScriptedNodes()
    with monkeypatch.context() as broken:
        broken.setattr(JobPlan, "best_pass", lambda plan: 1 // 0)
        job = nodes.submit(job_config(), data_index())
    assert nodes.core.jobs.job(job).state == "failed"
    second = nodes.submit(job_config(), data_index())
    nodes.run()
    assert nodes.core.jobs.job(second).state == "succeeded"


def test_a_valid_set_of_one_class_has_no_best_pass_and_the_last_one_counts() -> None:
    nodes = ScriptedNodes()
    nodes.aucs = [None] * 3
    training = {"passes": 5, "batch_size": 50, "early_stopping": {"metric": "auc", "patience": 2}}
    job = nodes.submit(job_config(training=training), data_index())
    nodes.run()
    result = nodes.core.records[job].result
    assert result is not None
    assert (result["passes"], result["best_pass"], result["best_version"], result["best_by"]) == (2, 2, 2, None)
    assert result["valid"] == {"auc": None, "num_samples": 10}
    reasons = [message for _, kind, message in nodes.core.records[job].events if kind == "early_stopping"]
    assert reasons == ["auc had no value for 2 pass(es), patience is 2"]


@pytest.mark.parametrize("name", ["../s0", "s 0", ".s0", "s" * 65, "s0\n"])
def test_names_that_cannot_stand_in_a_file_name_are_refused(name: str) -> None:
    members = Membership("token", 5.0)
    (refused,) = members.handle(wire.Register("server", "token", 1, "", "cpu", "host", name), 0.0)
    assert isinstance(refused, NodeRefused)
    assert isinstance(refused.error, WireError)
