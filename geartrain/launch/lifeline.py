"""The lifeline of a role's process: it dies with the process that started it, however that one ends.

The launcher puts its process id into the role's environment; the role binds itself to it before anything else. On
Linux the kernel then kills the role as soon as the launcher is gone, SIGKILL of the launcher included; elsewhere a
thread looks twice a second.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import MutableMapping

PARENT_VARIABLE = "GEARTRAIN_PARENT_PID"
"""Environment variable with the process id of the launcher; absent in a role that was started by hand."""

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5


def lifeline_environment() -> dict[str, str]:
    """What a launcher adds to a role's environment. The thread that starts the role must live as long as the role:
    the kernel watches the thread, not the process."""
    return {PARENT_VARIABLE: str(os.getpid())}


def bind_to_parent(environment: MutableMapping[str, str]) -> None:
    """Tie this process to the launcher that `environment` names; nothing happens where it names none.

    The variable is taken out, so that no process started from here inherits it.
    """
    value = environment.pop(PARENT_VARIABLE, None)
    if value is None:
        return
    parent = int(value)
    if not _ask_kernel():
        watch_parent(parent)
    # The launcher may have died before the kernel was asked; then this process has another parent already.
    if os.getppid() != parent:
        _die()


def watch_parent(parent: int) -> None:
    """Watch process `parent` from a thread of its own and die when this process is no longer its child."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        _die()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _ask_kernel() -> bool:
    """Have the kernel send SIGKILL when the parent ends; False where it cannot."""
    if not sys.platform.startswith("linux"):
        return False
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
