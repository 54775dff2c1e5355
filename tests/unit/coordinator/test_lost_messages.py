"""A message that is lost on its way is sent again; a node that never answers is given up by name."""

from __future__ import annotations

import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from geartrain.errors import DeadlineError
from geartrain.wire import messages as wire


@pytest.mark.parametrize(
    "kind",
    [
        wire.OpenJob,
        wire.PlaceDense,
        wire.HostGroup,
        wire.JoinGroup,
        wire.Grant,
        wire.Decided,
        wire.Apply,
        wire.Evaluate,
        wire.TakeSnapshot,
    ],
)
def test_a_job_survives_the_loss_of_one_message(kind: type) -> None:
    nodes = ScriptedNodes()
    nodes.lose_next = {kind}
    job = nodes.submit(job_config(), data_index())
    nodes.run()
    for _ in range(10):
        nodes.pass_time(1.0)
        nodes.run()
    assert nodes.lose_next == set()
    assert nodes.core.jobs.job(job).state == "succeeded", nodes.core.jobs.job(job).reason
    result = nodes.core.records[job].result
    assert result is not None
    assert (result["samples"], result["version"]) == (100, 14)


@pytest.mark.parametrize("kind", [wire.OpenJob, wire.Evaluate, wire.TakeSnapshot])
def test_a_node_that_lives_but_never_answers_is_given_up_by_name(kind: type) -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())

    def asked() -> bool:
        return any(isinstance(message, kind) for _, message in nodes.sent)

    nodes.run(until=asked)
    node = next(node for node, message in nodes.sent if isinstance(message, kind))
    nodes.never_answer.add(node)
    nodes.run()
    for _ in range(620):
        nodes.pass_time(1.0)
    error = nodes.core.records[job].error
    assert error is not None
    assert error["code"] == DeadlineError.code
    assert node in error["role"]
    assert kind.__name__ in error["message"]
