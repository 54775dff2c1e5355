"""Memory of a process, as Linux tells it."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes(pid: int | None = None) -> int:
    """Memory that the process (this one by default) has now."""
    return _status_bytes(pid, "VmRSS")


def peak_resident_bytes(pid: int | None = None) -> int:
    """The most that it had since it began, or since `forget_peak`."""
    return _status_bytes(pid, "VmHWM")


def forget_peak(pid: int | None = None) -> None:
    """Let the peak begin anew at what is resident now."""
    (_folder(pid) / "clear_refs").write_text("5")


def _folder(pid: int | None) -> Path:
    return Path("/proc") / str(os.getpid() if pid is None else pid)


def _status_bytes(pid: int | None, field: str) -> int:
    for line in (_folder(pid) / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) << 10
    raise ValueError(f"no {field} of process {pid}")
