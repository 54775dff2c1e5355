"""What a role writes to its log: one line per event on stderr, which the launcher keeps in a file."""

from __future__ import annotations

import logging


def write_log(role: str, level: str = "INFO") -> None:
    """Send this process's log to stderr, each line with time, role and origin. `level`: DEBUG, INFO, WARNING, ERROR."""
    logging.basicConfig(level=level, format=f"%(asctime)s {role} %(levelname)s %(name)s: %(message)s", force=True)
    for chatty in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
