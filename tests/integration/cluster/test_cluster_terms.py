"""Terms of a coordinator whose calls come close together, and of one that has a successor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster_support import job_fields, write_data

from coordinator.control import ControlServer
from coordinator.core import Core, CoreSettings
from coordinator.plan import Task
from coordinator.records import JobRecord
from geartrain.config import parse_config
from geartrain.data.index import build_index
from geartrain.errors import StaleMessageError
from geartrain.store import SqliteStore
from geartrain.wire.messages import Register


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "state.sqlite")) as opened:
        yield opened


def control_of(store: SqliteStore, folder: Path) -> ControlServer:
    core = Core(CoreSettings("token", 60.0, 1, 1, folder), store.raise_term(), time.time)
    for name, role in (("s0", "server"), ("w0", "worker")):
        core.member(Register(role, "token", 100, f"ipc://{name}", "cpu", "host", name), time.monotonic())
    return ControlServer(core, store, "tcp://127.0.0.1:0")


def submission(folder: Path, job: str) -> Callable[[Core, float], tuple[str, Any]]:
    data = write_data(folder / f"data-{job}", num_rows=20)
    config = parse_config(job_fields(data={"root": str(data)}), folder, [data])
    record = JobRecord(job, config, Task(), build_index(config), None, 1.0)
    return lambda core, now_s: (job, core.submit(record, now_s))


def test_jobs_submitted_at_the_same_moment_are_all_taken(store: SqliteStore, tmp_path: Path) -> None:
    """The first one starts and raises the term; those behind it in the queue are stored in the new one."""
    control = control_of(store, tmp_path)
    work = [submission(tmp_path, f"job{number}") for number in range(3)]
    taken: list[str] = []
    callers = [threading.Thread(target=lambda one=one: taken.append(control.call(one))) for one in work]
    for caller in callers:
        caller.start()
    control.start()
    for caller in callers:
        caller.join()
    control.close()
    assert sorted(taken) == ["job0", "job1", "job2"]
    assert [key for key, _ in store.items("job/")] == ["job/job0", "job/job1", "job/job2"]


def test_an_old_coordinator_cannot_raise_the_term_beside_its_successor(store: SqliteStore, tmp_path: Path) -> None:
    control = control_of(store, tmp_path)
    successor = store.raise_term()
    control.start()
    with pytest.raises(StaleMessageError, match="has taken over"):
        control.call(submission(tmp_path, "late"))
    control.close()
    assert store.items("job/") == []
    with pytest.raises(StaleMessageError):
        store.raise_term(successor - 1)
    assert store.raise_term(successor) == successor + 1
