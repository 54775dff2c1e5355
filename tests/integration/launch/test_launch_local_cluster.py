"""A local cluster of stand-ins: jobs, deaths and what is said about them."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster_driver import cluster_of
from process_watch import Watched

from geartrain.errors import RoleDiedError
from geartrain.launch import local
from geartrain.launch.local import Job, LocalCluster
from geartrain.timeouts import TimeOuts


def run_until_training(cluster: LocalCluster, act: object) -> Job:
    """Run a job and call `act` once, when it is in training."""
    acts = [act]

    def observe(job: Job) -> None:
        if acts:
            acts.pop()()  # type: ignore[operator]

    return cluster.run_job({"name": "fake"}, {"kind": "train"}, observe)


def role(cluster: LocalCluster, name: str) -> local.RoleProcess:
    return next(role for role in cluster.roles if role.name == name)


def test_a_job_runs_to_its_end_and_all_roles_stop(tmp_path: Path) -> None:
    ended = {"state": "succeeded", "result": {"job": "job-1"}}
    with cluster_of(tmp_path) as cluster:
        assert [role.name for role in cluster.roles] == ["coordinator", "s0", "s1", "w0", "w1"]
        roles = Watched(role.process.pid for role in cluster.roles)
        job = run_until_training(cluster, lambda: (tmp_path / "job.json").write_text(json.dumps(ended)))
        assert (job["state"], job["result"]) == ("succeeded", {"job": "job-1"})
    assert json.loads((tmp_path / "submitted.json").read_text()) == {
        "config": {"name": "fake"},
        "task": {"kind": "train"},
    }
    assert roles.all_gone()


@pytest.mark.parametrize(
    ("name", "signum", "line"),
    [
        ("s1", signal.SIGKILL, "server s1 was killed (SIGKILL)"),
        ("w0", signal.SIGSEGV, "worker w0 was killed (SIGSEGV)"),
        ("coordinator", signal.SIGKILL, "coordinator was killed (SIGKILL)"),
    ],
)
def test_a_killed_role_is_named_and_the_others_end(
    tmp_path: Path, name: str, signum: signal.Signals, line: str
) -> None:
    with pytest.raises(RoleDiedError) as caught, cluster_of(tmp_path) as cluster:
        roles = Watched(role.process.pid for role in cluster.roles)
        run_until_training(cluster, lambda: os.kill(role(cluster, name).process.pid, signum))
    assert (caught.value.message, caught.value.facts["role"]) == (line, name)
    assert roles.all_gone()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_a_role_that_fails_is_named_with_its_last_words(
    tmp_path: Path, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "REASON_GRACE_S", 0.0)
    with pytest.raises(RoleDiedError) as caught, cluster_of(tmp_path, ("cpu", str(fifo))) as cluster:
        run_until_training(cluster, lambda: fifo.write_text("fail"))
    assert caught.value.message == "worker w1 exited with status 1: row 7: 'x' is no number"


def test_the_jobs_own_reason_is_preferred_to_a_roles_last_words(tmp_path: Path, fifo: Path) -> None:
    error = {"code": "bad_row", "message": "train.csv, row 7, column i1: 'x' is no number"}

    def fail() -> None:
        fifo.write_text("fail")
        role(cluster, "w1").process.wait()
        (tmp_path / "job.json").write_text(json.dumps({"state": "failed", "error": error}))

    with cluster_of(tmp_path, ("cpu", str(fifo))) as cluster:
        assert run_until_training(cluster, fail)["error"] == error


def test_a_death_comes_before_a_failure_that_follows_from_it(tmp_path: Path) -> None:
    """The job may fail because a worker misses the server before the launcher sees that the server is gone."""
    error = {"code": "deadline_exceeded", "message": "server s0 did not answer"}

    def fall() -> None:
        killed = role(cluster, "s0").process
        killed.kill()
        killed.wait()
        (tmp_path / "job.json").write_text(json.dumps({"state": "failed", "error": error}))

    with pytest.raises(RoleDiedError, match="server s0 was killed"), cluster_of(tmp_path) as cluster:
        run_until_training(cluster, fall)


def test_a_coordinator_that_says_it_ends_is_believed(tmp_path: Path) -> None:
    with pytest.raises(RoleDiedError, match="the coordinator has ended: full"), cluster_of(tmp_path) as cluster:
        run_until_training(cluster, (tmp_path / "ending").touch)


def test_a_coordinator_that_says_it_ends_is_believed_after_its_nodes_have_ended(tmp_path: Path, fifo: Path) -> None:
    def end() -> None:
        fifo.write_text("stop")
        role(cluster, "w1").process.wait()
        (tmp_path / "ending").touch()

    ended = pytest.raises(RoleDiedError, match="the coordinator has ended: full")
    with ended, cluster_of(tmp_path, ("cpu", str(fifo))) as cluster:
        run_until_training(cluster, end)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geartrain.launch.role_process.shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(RoleDiedError) as caught, cluster_of(tmp_path, ("cpu", "broken")) as cluster:
        run_until_training(cluster, lambda: None)
    assert caught.value.message.endswith(f"torch does not fit (the disk of {tmp_path / 'logs'} is full)")


def test_a_coordinator_that_was_stopped_is_named_and_not_the_nodes_that_it_stopped(tmp_path: Path, fifo: Path) -> None:
    def stop() -> None:
        fifo.write_text("stop")
        role(cluster, "w1").process.wait()
        (tmp_path / "stopping").touch()

    with pytest.raises(RoleDiedError) as caught, cluster_of(tmp_path, ("cpu", str(fifo))) as cluster:
        run_until_training(cluster, stop)
    assert caught.value.message == "coordinator exited with status 0"


def test_a_frozen_coordinator_counts_as_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "ANSWER_S", 0.2)
    monkeypatch.setattr(local, "DEFAULT", TimeOuts(lease_s=0.2))
    with pytest.raises(RoleDiedError) as caught, cluster_of(tmp_path) as cluster:
        run_until_training(cluster, lambda: os.kill(role(cluster, "coordinator").process.pid, signal.SIGSTOP))
    assert caught.value.message == "the coordinator did not answer for 0.6 s"


def test_a_node_that_gives_up_on_a_frozen_coordinator_is_not_to_blame(
    tmp_path: Path, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "ANSWER_S", 0.2)

    def freeze() -> None:
        os.kill(role(cluster, "coordinator").process.pid, signal.SIGSTOP)
        fifo.write_text("give up")

    with pytest.raises(RoleDiedError) as caught, cluster_of(tmp_path, ("cpu", str(fifo))) as cluster:
        run_until_training(cluster, freeze)
    assert caught.value.facts["role"] == "coordinator"
    assert "the coordinator does not answer, and worker w1 exited with status 1" in caught.value.message


def test_a_role_that_cannot_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoleDiedError) as caught, cluster_of(tmp_path, ("cpu", "broken")) as cluster:
        run_until_training(cluster, lambda: None)
    assert caught.value.message == "worker w1 exited with status 1: OSError: torch does not fit"


def test_a_frozen_role_is_killed_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "STOP_GRACE_S", 0.2)
    with cluster_of(tmp_path) as cluster:
        roles = Watched(role.process.pid for role in cluster.roles)
        os.kill(role(cluster, "s0").process.pid, signal.SIGSTOP)
    assert roles.all_gone()


def test_the_run_folder_is_private_and_vanishes(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        ready = next(option for option in cluster.roles[0].process.args if "--ready-file=" in str(option))
        folder = Path(str(ready).partition("=")[2]).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(str(folder)) < 80
    assert not folder.exists()
    assert (tmp_path / "logs" / "w1.log").exists()


def test_cores_are_divided_among_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(local, "num_cores", lambda: 9)
    with cluster_of(tmp_path) as cluster:
        environment = Path(f"/proc/{role(cluster, 'w0').process.pid}/environ").read_bytes().split(b"\0")
    assert b"OMP_NUM_THREADS=4" in environment
