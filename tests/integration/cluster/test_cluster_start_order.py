"""Roles started one by one, the coordinator last; and a server that registers but cannot be reached."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_support import DEADLINE_S, Commands, free_port, job_fields, wait_for, write_data

from api.sdk import GeartrainClient
from geartrain.errors import DeadlineError


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_any_role_first_and_an_unreachable_server(commands: Commands, short_folder: Path) -> None:
    data, address = write_data(commands.folder / "data"), f"127.0.0.1:{free_port()}"
    socket = short_folder / "s0"
    worker = commands.start("worker", f"--coordinator={address}")
    server = commands.start("server", f"--coordinator={address}", f"--listen=ipc://{socket}")
    # They listen and look for the coordinator, or at least have begun to.
    wait_for(lambda: len(commands.processes()) == 2, "both")
    coordinator = commands.start(
        "coordinator", f"--listen={address}", "--state-dir=state", "--output=output", f"--allow-root={data}"
    )
    with GeartrainClient(f"http://{address}") as client:
        wait_for(lambda: is_ready(client), "all nodes")
        assert {node["name"] for node in client.nodes()} == {"s0", "w0"}
        fields = job_fields(data={"root": str(data)}, training={"passes": 1})
        first = client.wait(client.submit(fields)["id"], poll_s=0.05)
        assert (first["state"], first["result"]["samples"]) == ("succeeded", 2000)

        # What listens at the server's address is gone for whoever connects from now on.
        socket.unlink()
        second = client.wait(client.submit(fields)["id"], poll_s=0.05)
        assert second["state"] == "failed"
        assert second["error"]["code"] == "deadline_exceeded"
        assert second["error"]["role"] == "s0"
        assert f"embedding server s0 at ipc://{socket} did not answer within" in second["error"]["message"]
        assert client.ready()[0]

    coordinator.send_signal(signal.SIGTERM)
    for process in (coordinator, server, worker):
        assert process_status(process) == 0


def is_ready(client: GeartrainClient) -> bool:
    try:
        return client.ready()[0]
    except DeadlineError:  # the coordinator does not listen yet
        return False


def process_status(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=DEADLINE_S)
    return process.returncode
