"""One standing cluster for all tests of this folder, started by `geartrain up` and stopped by `geartrain down`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_support import Commands, commands_in, free_port, write_data
from standing_cluster import Standing

from api.sdk import GeartrainClient


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
