"""A worker that freezes while the others of its sync group wait for it: they are free again as soon as it is missed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cluster_support import Commands, free_port, wait_for, write_data
from standing_cluster import Standing
from training_runs import signal_role

from api.sdk import GeartrainClient
from geartrain.timeouts import DEFAULT

SLOW = 1
"""Samples per second of the member that freezes: it is always the one that the others wait for."""


@pytest.fixture
def standing(commands: Commands) -> Iterator[Standing]:
    folder, port = commands.folder, free_port()
    data, output = write_data(folder / "data"), folder / "output"
    devices = [f"--device=emulate:samples_per_s={speed}" for speed in (10_000, SLOW, 10_000)]
    up = commands.run("up", f"--port={port}", f"--output={output}", f"--allow-root={data}", *devices)
    assert (up.status, up.stderr) == (0, ""), up
    with GeartrainClient(f"http://127.0.0.1:{port}") as client:
        yield Standing(commands, client, f"http://127.0.0.1:{port}", data, output)
    assert commands.run("down").status == 0


def logged_at(folder: Path, role: str, words: str) -> datetime | None:
    """When a role first said so, by its log."""
    for log in folder.rglob(f"{role}.log"):
        for line in log.read_text().splitlines():
            if words in line:
                return datetime.fromisoformat(line.split()[0] + " " + line.split()[1].replace(",", "."))
    return None


def test_the_others_are_free_as_soon_as_a_frozen_member_is_missed(standing: Standing) -> None:
    commands = standing.commands
    job = standing.submit(training={"batch_size": 48}, data={"valid": [], "test": []})
    standing.in_state(job, "training")
    frozen_at = datetime.now()
    signal_role(commands, "w1", signal.SIGSTOP)
    ended = standing.ended(job)
    assert (ended["state"], ended["error"]["role"]) == ("failed", "w1"), ended
    assert ended["error"]["message"].startswith("worker w1 died: w1 is silent for ")

    def closed() -> datetime | None:
        return logged_at(commands.folder, "coordinator", f"{job} is closed: all nodes have closed it")

    closed_at = wait_for(closed, "all other nodes to be free")
    assert closed_at - frozen_at < timedelta(seconds=DEFAULT.lease_s + 2.5), "a lease, and what a busy machine needs"
    for worker in ("w0", "w2"):
        assert logged_at(commands.folder, worker, "left sync group ") is not None
