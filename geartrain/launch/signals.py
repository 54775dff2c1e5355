"""Signals that ask a launcher to stop become one exception, so that `with` blocks clean up and the status is right."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequested(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived. Not an `Exception`: nothing may swallow it on its way out."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.exit_status = 128 + signum


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `StopRequested` in the main thread at the first of these signals and ignore the ones after it.

    Ignoring is safe because stopping has its own deadline. A SIGHUP that was ignored at the start (nohup) stays so.
    """
    requested = False

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal requested
        if not requested:
            requested = True
            raise StopRequested(signum)

    handled = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    previous = {signum: signal.signal(signum, handle) for signum in handled}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
