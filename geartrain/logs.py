"""What a role writes to its log: one line per event on stderr, which the launcher keeps in a file."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from geartrain.errors import ConfigError

LOG_VARIABLE = "GEARTRAIN_LOG"
"""The environment variable with the lowest level that is written; INFO without it."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def write_log(role: str, environment: Mapping[str, str]) -> None:
    """Send this process's log to stderr, each line with time, role and origin.

    Raises `ConfigError` where `environment` names a level that there is not.
    """
    level = environment.get(LOG_VARIABLE) or "INFO"
    if level not in LEVELS:
        expected = f"one of {', '.join(LEVELS)}"
        message = f"{LOG_VARIABLE}: expected {expected}, got {level!r}"
        raise ConfigError(message, field=LOG_VARIABLE, value=level, expected=expected)
    logging.basicConfig(level=level, format=f"%(asctime)s {role} %(levelname)s %(name)s: %(message)s", force=True)
    for chatty in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
