"""No role outlives its launcher, however that one ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_watch import DEADLINE_S, Watched

DRIVER = str(Path(__file__).with_name("cluster_driver.py"))


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a cluster whose job is in training."""
    with start(tmp_path, {}) as process:
        yield process
        process.kill()


def start(output: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, DRIVER, "job", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def roles_in_training(process: subprocess.Popen[str]) -> Watched:
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())
    assert len(pids) == 5
    assert process.stdout.readline() == "training\n"
    return Watched(pids)


def test_sigkill_of_the_launcher_ends_all_roles(owner: subprocess.Popen[str]) -> None:
    roles = roles_in_training(owner)
    owner.kill()
    assert roles.all_gone()


def test_roles_end_without_the_kernels_help_too(tmp_path: Path) -> None:
    with start(tmp_path, {"FAKE_LIFELINE": "thread"}) as process:
        roles = roles_in_training(process)
        process.kill()
        assert roles.all_gone()


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_the_job_and_stops_all_roles(
    owner: subprocess.Popen[str], tmp_path: Path, signum: signal.Signals, status: int
) -> None:
    roles = roles_in_training(owner)
    owner.send_signal(signum)
    _, stderr = owner.communicate(timeout=DEADLINE_S)
    assert owner.returncode == status
    assert stderr == ""
    assert (tmp_path / "cancelled").exists()
    assert roles.all_gone()


def test_a_second_ctrl_c_does_not_disturb_the_stop(owner: subprocess.Popen[str]) -> None:
    roles = roles_in_training(owner)
    owner.send_signal(signal.SIGINT)
    owner.send_signal(signal.SIGINT)
    _, stderr = owner.communicate(timeout=DEADLINE_S)
    assert (owner.returncode, stderr) == (130, "")
    assert roles.all_gone()


def test_a_role_whose_launcher_is_gone_already_ends_at_once() -> None:
    script = "import os; from geartrain.launch.lifeline import bind_to_parent; bind_to_parent(os.environ); print('on')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "GEARTRAIN_PARENT_PID": "1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_a_role_started_by_hand_is_bound_to_nobody() -> None:
    script = "import os; from geartrain.launch.lifeline import bind_to_parent; bind_to_parent(os.environ); print('on')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"on\n")
