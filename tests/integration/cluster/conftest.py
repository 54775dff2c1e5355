"""One standing cluster for all tests of this folder, started by `geartrain up` and stopped by `geartrain down`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_support import Commands, commands_in, job_fields, wait_for, write_data

from api.sdk import GeartrainClient

FINAL = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Standing:
    """A cluster that is up: its commands, its API, and the only folder whose data it may read."""

    commands: Commands
    client: GeartrainClient
    url: str
    data: Path
    output: Path

    def submit(self, task: dict[str, str] | None = None, **sections: Any) -> str:
        """Queue a job on the shared data; its id."""
        fields = job_fields(**sections)
        fields["data"] = {"root": str(self.data), **fields["data"]}
        return str(self.client.submit(fields, task)["id"])

    def run(self, task: dict[str, str] | None = None, **sections: Any) -> dict[str, Any]:
        """A job that must succeed: its result."""
        job = self.ended(self.submit(task, **sections))
        assert job["state"] == "succeeded", job
        result = job["result"]
        assert isinstance(result, dict)
        return result

    def ended(self, job: str) -> dict[str, Any]:
        return self.in_state(job, *FINAL)

    def in_state(self, job: str, *states: str) -> dict[str, Any]:
        """The job once it is in one of these states; the test fails when it ends in another one."""

        def look() -> dict[str, Any] | None:
            status = self.client.job(job)
            assert status["state"] in states or status["state"] not in FINAL, status
            return status if status["state"] in states else None

        return wait_for(look, f"{job} to be {states}")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with commands_in(tmp_path) as running:
        yield running


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("standing")
    data, output, port = write_data(folder / "data"), folder / "output", free_port()
    with commands_in(folder) as commands:
        up = commands.run("up", f"--port={port}", f"--output={output}", f"--allow-root={data}")
        assert (up.status, up.stderr) == (0, ""), up
        url = f"http://127.0.0.1:{port}"
        assert up.stdout == f"up at {url} with 2 servers and 2 workers\n"
        with GeartrainClient(url) as client:
            yield Standing(commands, client, url, data, output)
        down = commands.run("down")
        assert (down.status, down.stdout, down.stderr) == (0, "stopped\n", "")
