"""The life of jobs in the core, with scripted nodes: all phases, all ways to end, and what must change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator import journal, views
from coordinator.conservation import prove_conservation
from coordinator.core import Core
from coordinator.plan import Task
from geartrain.errors import ConflictError, RoleDiedError
from geartrain.wire import messages as wire


def finished(nodes: ScriptedNodes, job: str) -> dict[str, Any]:
    result = nodes.core.records[job].result
    assert nodes.core.jobs.job(job).state == "succeeded", nodes.core.jobs.job(job).reason
    assert result is not None
    return result


def test_a_job_goes_through_all_its_phases() -> None:
    nodes = ScriptedNodes()
    nodes.aucs = [0.7, 0.8, 0.75]
    job = nodes.submit(job_config(), data_index())
    nodes.run()
    result = finished(nodes, job)
    assert (result["passes"], result["samples"], result["version"]) == (2, 100, 14)
    assert (result["valid"]["auc"], result["test"]["auc"]) == (0.8, 0.75)
    assert result["test"]["num_samples"] == 10
    assert result["checkpoint"] == "/out/checkpoints/pass-0002-version-00000014"
    assert [worker["samples"] for worker in result["workers"]] == [50, 50]
    assert nodes.saved[job]["state"] == "succeeded"
    kinds = [type(message).__name__ for node, message in nodes.sent if node == "w0"]
    assert kinds.index("OpenJob") < kinds.index("PlaceDense") < kinds.index("JoinGroup") < kinds.index("Grant")
    assert kinds[-1] == "CloseJob"


@given(
    mode=st.sampled_from(["sync", "hybrid", "async"]),
    group_size=st.sampled_from(["auto", 1, 2]),
    depth=st.sampled_from([0, 1]),
    rows=st.integers(1, 90),
    workers=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    twice=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_every_sample_is_applied_once_whatever_the_order_of_answers(
    mode: str, group_size: Any, depth: int, rows: int, workers: int, seed: int, twice: bool
) -> None:
    nodes = ScriptedNodes(num_workers=workers, seed=seed)
    nodes.report_twice = twice
    sync = {"mode": mode, "group_size": group_size, "pipeline_depth": depth}
    job = nodes.submit(job_config(sync=sync), data_index(train=rows))
    nodes.run()
    result = finished(nodes, job)
    report = prove_conservation(nodes.entries, num_rows=rows, num_passes=2)
    assert report.samples_applied == result["samples"] == 2 * rows
    assert report.versions == result["version"]


def test_early_stopping_returns_to_the_best_pass_in_a_higher_term() -> None:
    nodes = ScriptedNodes()
    nodes.aucs = [0.7, 0.9, 0.8, 0.85, 0.88]
    training = {"passes": 10, "batch_size": 50, "early_stopping": {"metric": "auc", "patience": 2}}
    job = nodes.submit(job_config(training=training), data_index())
    nodes.run()
    result = finished(nodes, job)
    assert (result["passes"], result["best_pass"], result["best_version"], result["version"]) == (4, 2, 2, 4)
    assert (result["valid"]["auc"], result["test"]["auc"], result["best_by"]) == (0.9, 0.88, "auc")
    assert result["checkpoint"] == "/out/checkpoints/pass-0002-version-00000002"
    last_opening = [message for node, message in nodes.sent if isinstance(message, wire.OpenJob) and node == "s0"][-1]
    assert (last_opening.term, last_opening.restore, last_opening.version) == (3, result["checkpoint"], 2)
    assert nodes.core.term == 3


def test_only_the_newest_and_the_best_cuts_are_kept() -> None:
    nodes = ScriptedNodes()
    nodes.aucs = [0.9, 0.1, 0.2, 0.3, 0.4]
    training = {"passes": 4, "batch_size": 50, "early_stopping": {"metric": "auc", "patience": 4}}
    config = job_config(training=training, checkpoint={"keep": 1})
    nodes.submit(config, data_index())
    nodes.run()
    expired = [[path.name for path in cut.expired] for cut in nodes.cuts]
    assert expired == [[], [], ["pass-0002-version-00000002"], ["pass-0003-version-00000003"]]


def test_a_failed_node_ends_the_job_with_its_error_and_the_next_one_starts() -> None:
    nodes = ScriptedNodes()
    first = nodes.submit(job_config(), data_index())
    second = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    error = {"code": "bad_row", "message": "train.csv, row 7, column label: expected 0 or 1, got 2", "row": 7}
    nodes.message(wire.NodeFailed("w1", nodes.core.term, first, error))
    nodes.run()
    failed = nodes.core.jobs.job(first)
    assert (failed.state, failed.reason) == ("failed", error["message"])
    assert nodes.core.records[first].error == error
    assert finished(nodes, second)["samples"] == 100


def test_a_silent_server_ends_the_job_naming_it() -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    nodes.mute.add("s1")
    for _ in range(7):
        nodes.pass_time(1.0)
    nodes.run()
    error = nodes.core.records[job].error
    assert nodes.core.jobs.job(job).state == "failed"
    assert error is not None
    assert (error["code"], error["role"]) == (RoleDiedError.code, "s1")


def test_a_broken_connection_is_a_suspicion_until_the_lease_names_the_dead() -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    nodes.mute.add("w1")
    lost = RoleDiedError("sync group 0 lost a member")
    nodes.message(wire.NodeFailed("w0", nodes.core.term, job, lost.to_dict()))
    assert nodes.core.jobs.job(job).state == "training"
    for _ in range(7):
        nodes.pass_time(1.0)
    assert nodes.core.records[job].error is not None
    assert nodes.core.records[job].error["role"] == "w1"


def test_a_suspicion_that_nobody_confirms_still_ends_the_job() -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    nodes.message(wire.NodeFailed("w0", nodes.core.term, job, RoleDiedError("lost a member").to_dict()))
    for _ in range(7):
        nodes.pass_time(1.0)
    assert nodes.core.jobs.job(job).reason == "lost a member"


def test_stale_messages_are_refused_by_name_and_change_nothing() -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    before = (nodes.core.run.view.version if nodes.core.run else -1, len(nodes.entries))
    stale = wire.Staged("w0", 100, 0, 0, 3, 3, 4, 24, 28, {"s0": 100, "s1": 101}, 1.0, "", 1.0, 0.0)
    unknown_group = wire.Staged("w0", 100, 2, 77, 3, 3, 4, 24, 28, {"s0": 100, "s1": 101}, 1.0, "", 1.0, 0.0)
    old_incarnation = wire.Staged("w0", 99, 2, 0, 3, 3, 4, 24, 28, {"s0": 100, "s1": 101}, 1.0, "", 1.0, 0.0)
    for message in (stale, unknown_group, old_incarnation):
        nodes.message(message)
        node, answer = nodes.sent[-1]
        assert node == "w0"
        assert isinstance(answer, wire.Refused)
        assert answer.error["code"] == "stale_message"
    assert nodes.core.run is not None
    assert (nodes.core.run.view.version, len(nodes.entries)) == before
    nodes.run()
    assert finished(nodes, job)["samples"] == 100


def test_cancelling_a_queued_and_a_running_job() -> None:
    nodes = ScriptedNodes()
    running = nodes.submit(job_config(), data_index())
    queued = nodes.submit(job_config(), data_index())
    last = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    nodes.deliver(nodes.core.cancel(queued, nodes.now_s))
    nodes.deliver(nodes.core.cancel(running, nodes.now_s))
    with pytest.raises(ConflictError):
        nodes.core.cancel(running, nodes.now_s)
    nodes.run()
    states = {job: nodes.core.jobs.job(job).state for job in (running, queued, last)}
    assert states == {running: "cancelled", queued: "cancelled", last: "succeeded"}
    assert any(isinstance(entry, journal.JobEnded) and entry.state == "cancelled" for entry in nodes.entries)


def test_nodes_that_never_come_end_the_job_in_time() -> None:
    nodes = ScriptedNodes(num_servers=2)
    nodes.core.settings = nodes.core.settings.__class__("token", 5.0, 3, 2, Path("/out"))
    job = nodes.submit(job_config(), data_index())
    for _ in range(62):
        nodes.pass_time(1.0)
    assert nodes.core.jobs.job(job).state == "failed"
    assert "3 server(s)" in nodes.core.jobs.job(job).reason


def test_a_node_that_does_not_close_the_job_holds_up_the_next_one_for_a_bounded_time_only() -> None:
    nodes = ScriptedNodes()
    first = nodes.submit(job_config(), data_index())
    second = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    nodes.deliver(nodes.core.cancel(first, nodes.now_s))
    nodes._waiting.clear()  # the answers to CloseJob are lost
    for _ in range(25):
        nodes.pass_time(1.0)
    nodes.run()
    assert finished(nodes, second)["samples"] == 100


def test_skipped_steps_are_counted_and_bounded() -> None:
    nodes = ScriptedNodes()
    nodes.skip_steps = {2}
    training = {"passes": 1, "batch_size": 8, "max_skipped_steps": 1}
    job = nodes.submit(job_config(training=training), data_index())
    nodes.run()
    result = finished(nodes, job)
    assert (result["samples"], result["samples_skipped"], result["version"]) == (42, 8, 6)
    report = prove_conservation(nodes.entries, num_rows=50, num_passes=1)
    assert (report.samples_applied, report.samples_skipped) == (42, 8)
    nodes.skip_steps = {2, 3}
    failing = nodes.submit(job_config(training=training), data_index())
    nodes.run()
    assert nodes.core.jobs.job(failing).state == "failed"
    error = nodes.core.records[failing].error
    assert error is not None
    assert (error["code"], error["num_skipped"], error["allowed"]) == ("non_finite_gradient", 2, 1)


def test_a_lost_decision_is_sent_again_until_servers_confirm_it() -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    nodes.mute.add("s0")  # its messages are lost, its heartbeats are not
    nodes.run()
    nodes.mute.clear()
    for _ in range(3):
        nodes.pass_time(1.0)
        nodes.run()
    assert finished(nodes, job)["samples"] == 100


def test_the_schedule_is_in_the_decisions_of_every_mode() -> None:
    for mode in ("sync", "async"):
        nodes = ScriptedNodes()
        training = {
            "passes": 2,
            "batch_size": 10,
            "lr_schedule": {"type": "warmup", "warmup_samples": 50},
            "dense_optimizer": {"type": "adam", "lr": 0.1},
            "sparse_optimizer": {"type": "sgd", "lr": 1.0},
        }
        nodes.submit(job_config(training=training, sync={"mode": mode, "group_size": 2}), data_index(valid=0))
        nodes.run()
        decided = [entry for entry in nodes.entries if isinstance(entry, journal.Decided)]
        assert [round(entry.sparse_lr["user"], 6) for entry in decided] == [0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1, 1]
        assert [round(entry.dense_lr, 6) for entry in decided[:3]] == [0, 0.02, 0.04]


def test_evaluation_jobs_restore_and_do_not_train() -> None:
    nodes = ScriptedNodes()
    trained = nodes.submit(job_config(), data_index())
    nodes.run()
    checkpoint = finished(nodes, trained)["checkpoint"]
    nodes.aucs = [0.66]
    index = data_index(train=0, valid=10, test=0)
    job = nodes.submit(job_config(), index, Task("evaluate", checkpoint, "", "valid"))
    nodes.run()
    result = finished(nodes, job)
    assert (result["valid"]["auc"], result["test"], result["samples"]) == (0.66, None, 0)
    opening = [message for _, message in nodes.sent if isinstance(message, wire.OpenJob)][-1]
    assert opening.restore == checkpoint
    assert not any(isinstance(message, wire.Grant) for _, message in nodes.sent[-10:])


def test_views_follow_the_run() -> None:
    nodes = ScriptedNodes()
    with pytest.raises(ConflictError):
        views.window_view(nodes.core, 0.0)
    assert views.routing_view(nodes.core)["servers"] == []
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    assert views.window_view(nodes.core, nodes.now_s)["mode"] == "hybrid"
    shards = [server["num_shards"] for server in views.routing_view(nodes.core)["servers"]]
    assert shards == [512, 512]
    view = views.job_view(nodes.core, nodes.core.records[job])
    assert view["state"] == "training"
    assert view["progress"]["version"] == 3
    names = [node["name"] for node in views.node_views(nodes.core, nodes.now_s, 1000.0)]
    assert names == ["s0", "s1", "w0", "w1"]


def test_rates_of_the_tier_come_from_two_heartbeats() -> None:
    nodes = ScriptedNodes(num_servers=1)

    def beat(at_s: float, pulled: int) -> None:
        table = wire.TableStats(10, 1000, 2, 2, pulled, 5, 0.5, 2.0, 10, staged_bytes=7)
        nodes.core.member(wire.Heartbeat("s0", 100, wire.ServerStats({"user": table}, 7, 1, 3)), at_s)

    beat(1.0, 100)
    beat(3.0, 500)
    tier = views.tier_view(nodes.core)
    assert tier["servers"][0]["pull_rows_per_s"] == 200.0
    assert tier["totals"]["bytes_per_row"] == 100.0
    assert (tier["totals"]["staged_bytes"], tier["tables"]["user"]["num_rows"]) == (7, 10)


def test_a_coordinator_that_starts_again_knows_earlier_jobs() -> None:
    nodes = ScriptedNodes()
    done = nodes.submit(job_config(), data_index())
    nodes.run()
    broken_off = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    again = Core(nodes.core.settings, 2, lambda: 2000.0, json.loads(json.dumps(list(nodes.saved.values()))))
    states = {name: (again.jobs.job(name).state, past.result) for name, past in again.past.items()}
    assert states == {done: ("succeeded", nodes.core.records[done].result), broken_off: ("failed", None)}
    assert again.past[broken_off].error is not None
    assert again.past[broken_off].error["code"] == "role_died"
    assert views.job_view(again, again.past[done])["name"] == "scripted"
    assert again.jobs.active is None


def test_a_saved_job_whose_config_is_no_longer_valid_is_shown_as_it_ended() -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run()
    saved = json.loads(json.dumps(nodes.saved[job]))
    saved["config"]["of_an_older_version"] = {"model": "gone"}
    saved["task"] = {"mode": "gone"}
    (view,) = views.job_views(Core(nodes.core.settings, 2, lambda: 2000.0, [saved]))
    assert (view["id"], view["name"], view["state"], view["reason"]) == (job, "scripted", "succeeded", "finished")
    assert view["result"] == nodes.core.records[job].result
