"""Terms at an embedding server: which messages of the coordinator count, during a job and after it; no socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedding_tier.control import ServerControl
from embedding_tier.server import TierServer
from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import (
    Applied,
    Apply,
    CloseJob,
    JobClosed,
    JobOpened,
    OpenJob,
    PlaceDense,
    Route,
    TableSpec,
    TakeSnapshot,
    ToNode,
)

TABLES = [TableSpec("a", 2, {"type": "sgd"}, {"type": "zero"}, 1)]


def opening(term: int, job: str = "j") -> OpenJob:
    route = Route(1, ["s0"], ["ipc://s0"], [0] * NUM_SHARDS)
    return OpenJob(term, job, {}, {}, TABLES, route, version=0, restore="", restore_states=False)


def decision(term: int, version: int) -> Apply:
    return Apply(term, version, [], 0.0, 1.0, 1.0, 1.0, {"a": 1.0}, [])


@pytest.fixture
def control() -> ServerControl:
    return ServerControl("s0", 100, TierServer("token", 100), lambda told: None)


@pytest.mark.parametrize("term", [3, 5])
def test_only_messages_of_the_open_jobs_term_have_an_effect(control: ServerControl, term: int, tmp_path: Path) -> None:
    assert isinstance(control.handle(opening(4)), JobOpened)
    strangers: list[ToNode] = [
        decision(term, 1),
        PlaceDense(term, "j", [], [0, 0], {"type": "sgd"}, put_by="w0"),
        TakeSnapshot(term, 0, 0, str(tmp_path)),
    ]
    assert [control.handle(message) for message in strangers] == [None, None, None]
    assert list(tmp_path.iterdir()) == []
    assert control.handle(decision(4, 1)) == Applied("s0", 100, 4, 1)


def test_a_job_of_a_lower_term_is_refused_also_after_the_close(control: ServerControl) -> None:
    control.handle(opening(4))
    closed = control.handle(CloseJob(4, "j", "done"))
    assert isinstance(closed, JobClosed)
    assert (closed.node, closed.job) == ("s0", "j")
    assert control.handle(opening(3)) is None
    assert control.handle(CloseJob(3, "j", "late")) is None
    assert isinstance(control.handle(opening(5, "next")), JobOpened)


def test_the_last_counters_of_a_job_are_told_with_its_close(control: ServerControl) -> None:
    control.handle(opening(4))
    control.handle(decision(4, 1))
    closed = control.handle(CloseJob(4, "j", "done"))
    assert isinstance(closed, JobClosed)
    assert closed.stats is not None
    assert (closed.stats.version, list(closed.stats.tables)) == (1, ["a"])
    assert control.handle(CloseJob(4, "j", "done")) == JobClosed("s0", "j"), "nothing is held any more"
