"""A snapshot is of one version while the job goes on, is asked for again without harm, and ends when it must."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from snapshot_servers import (
    MANY,
    NUM_DENSE,
    PATIENT_S,
    SEGMENTS,
    SPECS,
    Server,
    cluster,
    contents,
    decision,
    route_of,
)

from embedding_tier.control import ServerControl
from embedding_tier.server import TierServer
from embedding_tier.snapshot import Snapshot
from embedding_tier.table_writer import TableWriter
from geartrain.errors import CheckpointError
from geartrain.wire.messages import (
    Applied,
    CloseJob,
    DensePlaced,
    FromNode,
    JobClosed,
    JobOpened,
    NodeFailed,
    OpenJob,
    PlaceDense,
    SnapshotBegun,
    SnapshotTaken,
    TakeSnapshot,
)

pytestmark = pytest.mark.usefixtures("no_fsync")


class Gate:
    """Holds up every writer before each block until it is opened; `waiting` is set while one stands there."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        self.waiting.set()
        assert self._open.wait(PATIENT_S)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    append = TableWriter.append

    def held_up(writer: TableWriter, first_shard: int, cut: Any) -> None:
        gate.pass_through()
        append(writer, first_shard, cut)

    monkeypatch.setattr(TableWriter, "append", held_up)
    yield gate
    gate.open()


@pytest.mark.parametrize("base", [None, 1])
def test_windows_that_come_meanwhile_are_not_in_it(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, base: int | None
) -> None:
    monkeypatch.setattr("embedding_tier.snapshot.CHUNK_ROWS", 32)
    (server,), (quiet,) = cluster(1), cluster(1)
    for one in (server, quiet):
        one.train(1)
        for table in one.tables[:4]:  # of the last one nothing is known since then: it writes everything
            table.store.begin_cut(1, None)
        one.train(2, share=0.5)
        one.train(3, share=0.3)
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    (tmp_path / "busy").mkdir()
    Snapshot(server.job, "job", "s0", TakeSnapshot(1, 3, 3, str(tmp_path / "busy"), base)).begin(told.put)
    assert gate.waiting.wait(PATIENT_S)
    for version in (4, 5, 6, 7):  # rows change, are born, and leave, and so do dense values
        server.train(version)
    gate.open()
    taken = told.get(timeout=PATIENT_S)
    assert isinstance(taken, SnapshotTaken)
    (tmp_path / "quiet").mkdir()
    assert taken.files == quiet.take(tmp_path / "quiet", base)
    kinds = [about["kind"] for about in taken.files.values() if about.get("table")]
    assert kinds == (["full"] * 5 if base is None else ["delta"] * 4 + ["full"])
    for name in taken.files:
        assert (tmp_path / "busy" / name).read_bytes() == (tmp_path / "quiet" / name).read_bytes()


class Controlled:
    """A server's control with a job open, and what it told later than its answers."""

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[FromNode] = queue.SimpleQueue()
        self.plane = TierServer("token", 100)
        self.control = ServerControl("s0", 100, self.plane, self.told.put)
        self.open(1)

    def open(self, term: int) -> None:
        opening = OpenJob(term, "job", {}, {}, SPECS, route_of(1), 0)
        assert isinstance(self.handle(opening), JobOpened)
        placing = PlaceDense(term, "job", SEGMENTS, [0, NUM_DENSE], {"type": "adam"}, "w0")
        assert isinstance(self.handle(placing), DensePlaced)
        job = self.plane.job
        assert job is not None
        job.put_dense(0, np.zeros(NUM_DENSE, dtype=np.float32))

    def handle(self, message: Any) -> FromNode | None:
        return self.control.handle(message)

    def hears(self) -> FromNode:
        return self.told.get(timeout=PATIENT_S)


@pytest.fixture
def controlled() -> Iterator[Controlled]:
    controlled = Controlled()
    yield controlled
    controlled.control.stop_snapshot()


def failure(answer: FromNode | None) -> dict[str, Any]:
    assert isinstance(answer, NodeFailed)
    assert (answer.node, answer.job) == ("s0", "job")
    return answer.error


def test_asked_again_it_says_how_far_it_is(tmp_path: Path, controlled: Controlled, gate: Gate) -> None:
    asked = TakeSnapshot(1, 7, 0, str(tmp_path))
    begun = SnapshotBegun("s0", 1, 7)
    assert controlled.handle(asked) == begun
    assert gate.waiting.wait(PATIENT_S)
    assert controlled.handle(asked) == begun
    other = failure(controlled.handle(TakeSnapshot(1, 8, 0, str(tmp_path))))
    assert (other["code"], other["got"], other["current"]) == ("conflict", 8, 7)
    assert controlled.handle(decision(1)) == Applied("s0", 100, 1, 1)
    gate.open()
    taken = controlled.hears()
    assert isinstance(taken, SnapshotTaken) and (taken.node, taken.term, taken.snapshot) == ("s0", 1, 7)
    assert {path.name for path in tmp_path.iterdir()} == set(taken.files)
    assert controlled.handle(asked) == taken
    # The next one is free to begin.
    assert failure(controlled.handle(TakeSnapshot(1, 8, 0, str(tmp_path))))["code"] == "version_unavailable"
    (tmp_path / "next").mkdir()
    assert controlled.handle(TakeSnapshot(1, 8, 1, str(tmp_path / "next"))) == SnapshotBegun("s0", 1, 8)
    assert isinstance(controlled.hears(), SnapshotTaken)


@pytest.mark.parametrize("ended_by", ["close", "open", "stop"])
def test_the_end_of_the_job_ends_it(
    tmp_path: Path, controlled: Controlled, gate: Gate, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """When it is answered, nobody writes any more: the folder may be removed, or used by another job."""
    controlled.handle(TakeSnapshot(1, 7, 0, str(tmp_path)))
    assert gate.waiting.wait(PATIENT_S)
    cancel = Snapshot.cancel

    def in_the_middle(snapshot: Snapshot) -> None:
        snapshot._cancelled.set()
        gate.open()
        cancel(snapshot)

    monkeypatch.setattr(Snapshot, "cancel", in_the_middle)
    if ended_by == "close":
        assert isinstance(controlled.handle(CloseJob(1, "job", "cancelled")), JobClosed)
    elif ended_by == "open":
        controlled.open(2)
    else:
        controlled.control.stop_snapshot()
    assert not any(thread.name == "snapshot" for thread in threading.enumerate())
    assert list(tmp_path.iterdir()) == []
    assert controlled.told.empty()


def test_cancelled_it_leaves_no_file_and_no_cut(tmp_path: Path, gate: Gate) -> None:
    (server,) = cluster(1)
    server.train(1)
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    snapshot = Snapshot(server.job, "job", "s0", TakeSnapshot(1, 1, 1, str(tmp_path)))
    snapshot.begin(told.put)
    assert gate.waiting.wait(PATIENT_S)
    snapshot._cancelled.set()
    gate.open()
    snapshot.cancel()
    assert not snapshot.is_running and told.empty()
    assert list(tmp_path.iterdir()) == []
    for version in (2, 3):  # training and the next snapshot go on as if there had been none
        server.train(version)
    (quiet,) = cluster(1)
    for version in (1, 2, 3):
        quiet.train(version)
    assert contents([server]) == contents([quiet])


def test_a_writer_that_stands_still_is_named(
    tmp_path: Path, controlled: Controlled, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = TakeSnapshot(1, 7, 0, str(tmp_path))
    controlled.handle(asked)
    assert gate.waiting.wait(PATIENT_S)
    monkeypatch.setattr("embedding_tier.snapshot.STALL_S", -1.0)
    error = failure(controlled.handle(asked))
    assert (error["code"], error["role"], error["file"]) == ("deadline_exceeded", "s0", str(tmp_path))


def test_a_writer_that_does_not_end_is_named(
    tmp_path: Path, controlled: Controlled, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    controlled.handle(TakeSnapshot(1, 7, 0, str(tmp_path)))
    assert gate.waiting.wait(PATIENT_S)
    monkeypatch.setattr("embedding_tier.snapshot.STOP_DEADLINE_S", 0.0)
    for _ in range(2):  # and nothing else is begun meanwhile
        assert failure(controlled.handle(CloseJob(1, "job", "cancelled")))["code"] == "deadline_exceeded"
    monkeypatch.undo()
    gate.open()
    assert isinstance(controlled.handle(CloseJob(1, "job", "cancelled")), JobClosed)


def test_a_disk_that_fails_is_told_later_and_again(
    tmp_path: Path, controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(writer: TableWriter, *_: object) -> None:
        raise CheckpointError("rows cannot be written: No space left on device", file="rows")

    monkeypatch.setattr(TableWriter, "append", broken)
    asked = TakeSnapshot(1, 7, 0, str(tmp_path))
    assert isinstance(controlled.handle(asked), SnapshotBegun)
    told = controlled.hears()
    assert failure(told)["code"] == "checkpoint_invalid"
    assert controlled.handle(asked) == told
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_vanished_is_named(tmp_path: Path, controlled: Controlled, gate: Gate) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    controlled.handle(TakeSnapshot(1, 7, 0, str(folder)))
    assert gate.waiting.wait(PATIENT_S)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    gate.open()
    error = failure(controlled.hears())
    assert error["code"] == "checkpoint_invalid" and str(folder) in error["file"]


def test_a_fault_of_ours_is_told_too(tmp_path: Path, controlled: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(writer: TableWriter, *_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(TableWriter, "append", faulty)
    controlled.handle(TakeSnapshot(1, 7, 0, str(tmp_path)))
    assert "TakeSnapshot failed: ZeroDivisionError" in failure(controlled.hears())["message"]


def test_what_cannot_begin_leaves_no_cut_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (server,) = cluster(1)
    server.train(1)
    last = server.tables[-1].store

    def refuses(version: int, base: int | None) -> None:
        raise MemoryError

    monkeypatch.setattr(last, "begin_cut", refuses)
    with pytest.raises(MemoryError):
        Snapshot(server.job, "job", "s0", TakeSnapshot(1, 1, 1, str(tmp_path))).begin(lambda told: None)
    with pytest.raises(Exception, match="a cut under way"):
        server.tables[0].store.cut_shards(0, 1)
    assert list(tmp_path.iterdir()) == []


def test_pulls_are_served_while_it_is_written(tmp_path: Path, gate: Gate) -> None:
    (server,) = cluster(1)
    server.train(1)
    Snapshot(server.job, "job", "s0", TakeSnapshot(1, 1, 1, str(tmp_path))).begin(lambda told: None)
    assert gate.waiting.wait(PATIENT_S)
    rows, version = server.job.pull_rows(MANY, [len(MANY), 0, 0, 0, 0])
    assert version == 1 and np.any(rows)


def test_an_empty_folder_name_is_refused(controlled: Controlled) -> None:
    for name in ("", "/nowhere", "a\0b"):
        assert failure(controlled.handle(TakeSnapshot(1, 7, 0, name)))["code"] == "checkpoint_invalid"


def test_a_server_alone_is_whole(tmp_path: Path) -> None:
    server = Server(0, 1)
    server.train(1)
    assert {about.get("table") for about in server.take(tmp_path).values()} == {*(spec.name for spec in SPECS), None}
