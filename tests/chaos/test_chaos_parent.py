"""However the command ends in the middle of training, no role outlives it."""

from __future__ import annotations

import signal

import pytest
from cluster_support import Commands
from training_runs import ended_by, start_training


def test_a_killed_command_takes_its_roles_along(commands: Commands) -> None:
    process = start_training(commands)
    assert len(commands.processes()) == 6
    process.kill()
    process.communicate()
    assert commands.all_gone()


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_job(commands: Commands, signum: signal.Signals, status: int) -> None:
    process = start_training(commands, "--worker-num=1", "--server-num=1")
    process.send_signal(signum)
    done = ended_by(commands, process)
    assert (done.status, done.stderr) == (status, "")
    log = (commands.folder / "output" / "logs" / "coordinator.log").read_text()
    assert "cancelled: cancelled by a call" in log
