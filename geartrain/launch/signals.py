"""Signals that ask a launcher to stop become one exception, so that `with` blocks clean up and the status is right."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequested(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived. Not an `Exception`: nothing may swallow it on its way out."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.exit_status = 128 + signum


_requested: StopRequested | None = None


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `StopRequested` in the main thread at the first of these signals and ignore the ones after it.

    Ignoring is safe because stopping has its own deadline. A SIGHUP that was ignored at the start (nohup) stays so.
    Loops in the block call `raise_if_requested`.
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        global _requested  # noqa: PLW0603 - signals belong to the process, too
        if _requested is None:
            _requested = StopRequested(signum)
            raise _requested

    handled = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    previous = {signum: signal.signal(signum, handle) for signum in handled}
    try:
        with _quiet_unraisable():
            yield
    finally:
        _forget()
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def raise_if_requested() -> None:
    """Raise `StopRequested` again if a signal came.

    What was running then may have swallowed it: callbacks of the interpreter (imports, garbage collection) do, and
    libraries that catch everything.
    """
    if _requested is not None:
        raise _requested


def _forget() -> None:
    global _requested  # noqa: PLW0603
    _requested = None


@contextmanager
def _quiet_unraisable() -> Iterator[None]:
    """Without the interpreter's report of a `StopRequested` that it could not raise: it is raised later."""
    report = sys.unraisablehook

    def report_others(fault: sys.UnraisableHookArgs) -> None:
        if fault.exc_type is None or not issubclass(fault.exc_type, StopRequested):
            report(fault)

    sys.unraisablehook = report_others
    try:
        yield
    finally:
        sys.unraisablehook = report
