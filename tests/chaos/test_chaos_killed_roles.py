"""A role that is killed or frozen in mid-training ends the job: status 1, one line that names it, no orphan."""

from __future__ import annotations

import signal

import pytest
from cluster_support import Commands
from training_runs import ROLES, ended_by, signal_role, start_training

LABELS = {"coordinator": "coordinator", "s0": "server s0", "s1": "server s1", "w0": "worker w0", "w1": "worker w1"}


@pytest.mark.parametrize("role", ROLES)
def test_a_killed_role(commands: Commands, role: str) -> None:
    num_workers = 2 if role in ("s1", "w0", "w1") else 1
    process = start_training(commands, f"--worker-num={num_workers}")
    assert len(commands.processes()) == 4 + num_workers
    signal_role(commands, role, signal.SIGKILL)
    done = ended_by(commands, process)
    assert (done.status, done.error_line) == (1, f"{LABELS[role]} was killed (SIGKILL)")


@pytest.mark.parametrize(("role", "num_workers"), [("s1", 1), ("w0", 2)])
def test_a_frozen_role(commands: Commands, role: str, num_workers: int) -> None:
    """Its process lives and its sockets are open; only the lease tells."""
    process = start_training(commands, f"--worker-num={num_workers}")
    signal_role(commands, role, signal.SIGSTOP)
    done = ended_by(commands, process)
    assert done.status == 1
    assert done.error_line.startswith(f"{LABELS[role]} died: ")


def test_a_frozen_coordinator(commands: Commands) -> None:
    """The nodes miss it and end, but it is to blame."""
    process = start_training(commands, "--worker-num=1", "--server-num=1")
    signal_role(commands, "coordinator", signal.SIGSTOP)
    done = ended_by(commands, process)
    assert done.status == 1
    assert done.error_line.startswith("the coordinator ")
