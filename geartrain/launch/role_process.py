"""One role's process as its launcher sees it: started in the background, its output in a log file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from geartrain.errors import RoleDiedError
from geartrain.launch.lifeline import lifeline_environment

RoleCommand = Callable[[str, Sequence[str]], list[str]]
"""From a role (coordinator, server, worker) and its options to the command line of its process."""

_LOG_TAIL_BYTES = 8192
_FULL_BYTES = 64 << 10


def geartrain_command(role: str, options: Sequence[str]) -> list[str]:
    """The role of this installation; -P keeps folders of the working directory from hiding packages of ours."""
    return [sys.executable, "-P", "-m", "geartrain.cli", role, *options]


@dataclass(frozen=True, slots=True)
class RoleProcess:
    """`name`: coordinator, s0, s1, ..., w0, w1, ...; `log`: the file that its output goes to."""

    role: str
    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def label(self) -> str:
        return self.role if self.role == self.name else f"{self.role} {self.name}"

    @property
    def exit_status(self) -> int | None:
        """None while it runs, -N when signal N ended it."""
        return self.process.poll()

    def death(self) -> RoleDiedError:
        """How a process that has ended came to its end, in one line."""
        status = self.process.wait()
        if status < 0:
            how = f"was killed ({signal.Signals(-status).name})"
        else:
            last = last_line(self.log) if status else ""  # of one that was told to stop it says nothing
            how = f"exited with status {status}" + (f": {last}" if last else "")
            with suppress(OSError):
                if status and shutil.disk_usage(self.log.parent).free < _FULL_BYTES:
                    how += f" (the disk of {self.log.parent} is full)"  # the log may lack the last words then
        return RoleDiedError(f"{self.label} {how}", role=self.name, status=status)


def start_role(name: str, role: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> RoleProcess:
    """Start a role bound to this process and thread (see `lifeline`), in a process group of its own.

    Its own group: a Ctrl-C reaches the launcher alone, which then stops the roles in order.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, **lifeline_environment()},
            process_group=0,
        )
    return RoleProcess(role, name, log, process)


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, without the `error: ` before it; "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            tail = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else ""
