"""Jobs of an earlier coordinator: what had not ended has failed with it, for the reason that is known."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator.records import PastJob, settled
from geartrain.last_end import LastEnd

END = LastEnd("http://127.0.0.1:8000", "worker w1 was killed (SIGKILL)", "w1")


@pytest.fixture
def stored() -> dict[str, Any]:
    """The record of a job that trains."""
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    return nodes.core.records[job].stored("training", "training")


@pytest.mark.parametrize(
    ("end", "role", "reason"),
    [(END, "w1", END.reason), (None, "coordinator", "the coordinator ended before the job did")],
)
def test_an_unfinished_job_failed_for_the_reason_that_is_known(
    stored: dict[str, Any], end: LastEnd | None, role: str, reason: str
) -> None:
    past = PastJob.restored(settled(stored, end))
    assert (past.state, past.reason) == ("failed", reason)
    assert past.error == {"code": "role_died", "message": reason, "role": role}


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_is_as_it_ended(stored: dict[str, Any], state: str) -> None:
    ended = {**stored, "state": state, "reason": "as it was"}
    assert settled(ended, END) == ended
    assert (PastJob.restored(ended).state, PastJob.restored(ended).reason) == (state, "as it was")
