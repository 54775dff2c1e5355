"""Commands and clusters of real processes: tiny data, a config, ways to start, watch and find processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")

DEADLINE_S = 60.0
"""Only keeps a broken test from hanging: on a busy machine a cluster may need a while to start."""
MARK_VARIABLE = "GEARTRAIN_TEST_MARK"
HEADER = "label,user,item,price,tags"
_PAUSE = threading.Event()


def write_rows(path: Path, num_rows: int, seed: int, *, labeled: bool = True) -> None:
    """Rows whose label follows from user and item, with some noise: learnable, and never perfectly."""
    random = np.random.default_rng(seed)
    users, items = random.integers(0, 40, num_rows), random.integers(0, 60, num_rows)
    taste = np.sin(users * 1.7) + np.cos(items * 2.3) + random.normal(0, 0.5, num_rows)
    lines = [HEADER if labeled else HEADER.partition(",")[2]]
    for user, item, clicked in zip(users, items, taste > 0, strict=True):
        price = "" if item % 7 == 0 else f"{item / 10:.1f}"
        row = f"u{user},i{item},{price},{'|'.join(f't{(item * k) % 9}' for k in range(1, 1 + item % 4))}"
        lines.append(f"{int(clicked)},{row}" if labeled else row)
    path.write_text("\n".join(lines) + "\n")


def job_fields(**sections: Any) -> dict[str, Any]:
    """A config for the files of `write_data` in `data.root` (default: the config file's folder)."""
    fields: dict[str, Any] = {
        "name": "tiny",
        "features": [
            {"name": "user", "kind": "categorical"},
            {"name": "item", "kind": "categorical"},
            {"name": "price", "kind": "numeric", "transform": "log1p"},
            {"name": "tags", "kind": "sequence", "pooling": "mean"},
        ],
        "label": "label",
        "data": {"train": ["train-*.csv"], "valid": ["valid.csv"], "test": ["test.csv"]},
        "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [8]},
        "training": {"passes": 2, "batch_size": 128},
        "sync": {"mode": "sync"},
        "heterogeneous": False,  # equal shares: results can be compared digit by digit
    }
    for name, section in sections.items():
        old = fields.get(name)
        fields[name] = {**old, **section} if isinstance(old, dict) and isinstance(section, dict) else section
    return fields


def write_data(folder: Path, num_rows: int = 2000) -> Path:
    """Train files (two), valid and test in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "train-0.csv", num_rows // 2, 1)
    write_rows(folder / "train-1.csv", num_rows - num_rows // 2, 2)
    write_rows(folder / "valid.csv", 500, 3)
    write_rows(folder / "test.csv", 500, 4)
    return folder


def write_job(folder: Path, file: str = "job.json", **sections: Any) -> Path:
    """A config file in `folder`."""
    path = folder / file
    path.write_text(json.dumps(job_fields(**sections)))
    return path


def spoil(path: Path, row: int, line: str) -> None:
    """Replace a row (from 1, the header not counted) of a data file."""
    lines = path.read_text().splitlines()
    lines[row] = line
    path.write_text("\n".join(lines) + "\n")


def wait_for(look: Callable[[], Value | None], what: str, deadline_s: float = DEADLINE_S) -> Value:
    """What `look` gives as soon as it is neither None nor False; the test fails when that takes too long."""
    end_s = time.monotonic() + deadline_s
    while True:
        value = look()
        if value is not None and value is not False:
            return value
        assert time.monotonic() < end_s, f"waited {deadline_s:g} s for {what}"
        _PAUSE.wait(0.01)


def free_port() -> int:
    """A port that nobody listens on, and that the system gives to nobody who asks for any port."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("100 ports are all taken")


@dataclass
class Commands:
    """Runs `geartrain` commands whose processes, and all that descend from them, carry a mark to be found by."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """No setting of the machine's user may reach a test."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GEARTRAIN_")}
        own = {MARK_VARIABLE: self.mark, "GEARTRAIN_HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"}
        return {**inherited, **own, **self.extra}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "geartrain.cli", *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A Ctrl-C at the tests' own terminal ends the tests; they clean up.
            process_group=0,
        )

    def run(self, *arguments: str) -> Ended:
        """Run a command to its end."""
        return ended(self.start(*arguments))

    def processes(self) -> dict[int, list[str]]:
        """Command lines, by process id, of the marked processes that run."""
        wanted = f"{MARK_VARIABLE}={self.mark}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
        return found

    def role(self, name: str) -> int:
        """The process id of the coordinator, or of the server or worker of this name."""
        for pid, command in self.processes().items():
            if f"--name={name}" in command or (name == "coordinator" and "coordinator" in command):
                return pid
        raise AssertionError(f"{name} does not run")

    def all_gone(self) -> bool:
        """Whether the marked processes end; they may take their time, but not forever."""
        descriptors = []
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                descriptors.append(os.pidfd_open(pid))
        end_s = time.monotonic() + DEADLINE_S
        for descriptor in descriptors:
            select.select([descriptor], [], [], max(0.0, end_s - time.monotonic()))
            os.close(descriptor)
        return not self.processes()

    def kill_all(self) -> None:
        """For the end of a test that failed: nothing may be left behind."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of stdout."""
        fields = json.loads(self.stdout.splitlines()[-1])
        assert isinstance(fields, dict)
        return fields

    @property
    def error_line(self) -> str:
        """What stands on stderr, which must be exactly one line."""
        assert self.stderr.count("\n") == 1 and self.stderr.startswith("error: "), self.stderr
        return self.stderr.removeprefix("error: ").rstrip("\n")


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for the end of a command."""
    try:
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    return Ended(process.returncode, stdout, stderr)


@contextlib.contextmanager
def commands_in(folder: Path) -> Iterator[Commands]:
    """Commands whose processes are all gone at the end, or the test fails."""
    commands = Commands(folder)
    try:
        yield commands
    except BaseException:
        commands.kill_all()
        raise
    left = commands.processes()
    commands.kill_all()
    assert not left, f"left running: {left}"
