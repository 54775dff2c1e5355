"""A `train` that would take hours, caught in the middle of its training."""

from __future__ import annotations

import os
import re
import signal
import subprocess

from cluster_support import Commands, Ended, ended, write_data, write_job

ROLES = ("coordinator", "s0", "s1", "w0", "w1")


def start_training(commands: Commands, *options: str, batch_size: int = 16) -> subprocess.Popen[str]:
    """A `train` that has applied windows, is behind its first pass, and has thousands before it."""
    folder = write_data(commands.folder / "data")
    config = write_job(folder, training={"passes": 100_000, "batch_size": batch_size}, data={"valid": [], "test": []})
    process = commands.start("train", str(config), "--output=output", *options)
    assert process.stdout is not None
    for line in process.stdout:
        under_way = re.match(r"training: pass (\d+) ", line)
        if under_way and int(under_way[1]) > 1:
            return process
    raise AssertionError(f"training did not begin: {ended(process)}")


def signal_role(commands: Commands, name: str, signum: signal.Signals) -> None:
    os.kill(commands.role(name), signum)


def ended_by(commands: Commands, process: subprocess.Popen[str]) -> Ended:
    """How the command ended; nothing of it may still run then."""
    done = ended(process)
    assert commands.processes() == {}
    return done
