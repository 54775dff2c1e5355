"""Answers of the shell: one that tells of a failure ends the job, one for another job changes nothing."""

from __future__ import annotations

import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator.commands import ComputeMetrics, CutFilesDone, FilesDone, PrepareCut, PublishCut
from geartrain.errors import CheckpointError, NonFiniteError


@pytest.mark.parametrize("kind", [ComputeMetrics, PrepareCut, PublishCut])
def test_slow_work_that_fails_ends_the_job_with_its_error(kind: type) -> None:
    """Metrics of scores that are no numbers, a disk that is full: nothing waits for an answer that never comes."""
    error = NonFiniteError("3 of 10 scores are NaN or Inf") if kind is ComputeMetrics else CheckpointError("disk full")

    class FailingShell(ScriptedNodes):
        def deliver(self, commands: list) -> None:  # type: ignore[type-arg]
            for command in commands:
                if isinstance(command, kind):
                    answer = FilesDone if kind is ComputeMetrics else CutFilesDone
                    self._answer_shell(answer(command.job, error.to_dict()))
                else:
                    super().deliver([command])

    nodes = FailingShell()
    job = nodes.submit(job_config(), data_index())
    nodes.run()
    ended = nodes.core.jobs.job(job)
    assert (ended.state, ended.reason) == ("failed", error.message)
    assert nodes.core.records[job].error == error.to_dict()


def test_an_answer_for_another_job_is_not_taken_for_one_of_the_job_that_runs() -> None:
    """A cut of a job that was cancelled may be finished while its successor waits for a cut of its own."""
    nodes = ScriptedNodes()
    first = nodes.submit(job_config(), data_index())
    second = nodes.submit(job_config(), data_index())
    late = CutFilesDone(first, CheckpointError("disk full").to_dict())

    def late_answers_come() -> bool:
        active = nodes.core.jobs.active
        if active is not None and active.id == second:
            assert nodes.core.shell(late, nodes.now_s) == []
        return False

    nodes.run(until=late_answers_come)
    assert nodes.core.jobs.job(second).state == "succeeded"
