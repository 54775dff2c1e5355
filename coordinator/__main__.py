"""The coordinator's process: the core in its control thread, and the API in front of it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import msgspec

from api.app import create_app
from api.serve import ApiServer
from coordinator.cluster import Cluster
from coordinator.control import ControlServer
from coordinator.core import Core, CoreSettings
from coordinator.cut_folders import clear_unfinished
from coordinator.journal_file import STATE_FILE
from coordinator.portrait_memory import PortraitMemory
from coordinator.records import settled
from geartrain.files import write_text
from geartrain.last_end import read_last_end
from geartrain.store import SqliteStore
from geartrain.timeouts import DEFAULT


def run(
    *,
    listen: str,
    control_address: str,
    state_dir: Path,
    output_dir: Path,
    allowed_roots: list[Path],
    cluster_token: str,
    api_token: str | None,
    num_servers: int,
    num_workers: int,
    job_folders: bool,
    ready_file: Path | None,
) -> None:
    """Run a coordinator until SIGTERM or SIGINT.

    `listen` is the API's HOST:PORT (port 0: a free one), `control_address` the nodes' channel. `ready_file` gets
    `{"url", "control", "pid"}` once both listen. With `job_folders` each job writes into a folder of its own in
    `output_dir`. Raises `PortInUseError` before anything is started.
    """
    host, port = listen.rsplit(":", 1)
    store = SqliteStore(state_dir / STATE_FILE)
    settings = CoreSettings(cluster_token, DEFAULT.lease_s, num_servers, num_workers, output_dir, job_folders)
    before = [msgspec.json.decode(value) for _, value in store.items("job/")]
    end = read_last_end(state_dir)
    saved = [settled(job, end) for job in before]
    portraits = {key.removeprefix("portrait/"): msgspec.json.decode(value) for key, value in store.items("portrait/")}
    core = Core(settings, 0, time.time, saved, PortraitMemory(portraits))
    control = ControlServer(core, store, control_address)
    cluster = Cluster(control, allowed_roots, output_dir, Path.cwd())
    server = ApiServer(create_app(cluster, api_token=api_token), host, int(port))
    # Only now: whoever has one of the addresses may be the coordinator of this state, and must keep its term then.
    core.term = store.raise_term()
    for job, unsettled in zip(saved, before, strict=True):
        if job is not unsettled:  # why it failed will be asked for again, the note may be gone then
            store.put(core.term, f"job/{job['id']}", msgspec.json.encode(job))
    clear_unfinished(before, output_dir, job_folders)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    control.start()
    actual_port = server.start()
    if ready_file is not None:
        _write_ready(ready_file, f"http://{host}:{actual_port}", control.address)
    while not stop.wait(0.5) and not control.ended.is_set():
        pass
    server.stop()
    if not control.ended.is_set():
        control.close()
    store.close()
    if control.failure is not None:
        raise control.failure


def _write_ready(path: Path, url: str, control: str) -> None:
    write_text(path, json.dumps({"url": url, "control": control, "pid": os.getpid()}))
