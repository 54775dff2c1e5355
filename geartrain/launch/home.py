"""The folder for what outlives a command: `$GEARTRAIN_HOME`, else `~/.geartrain`; only its user can read it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "GEARTRAIN_HOME"
CLUSTER_TOKEN_VARIABLE = "GEARTRAIN_CLUSTER_TOKEN"


def home_directory(environment: Mapping[str, str]) -> Path:
    """The folder, made if need be."""
    chosen = environment.get(HOME_VARIABLE)
    home = Path(chosen).resolve() if chosen else Path.home() / ".geartrain"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home


def cluster_token(environment: Mapping[str, str]) -> str:
    """The secret that all roles of a cluster share: `$GEARTRAIN_CLUSTER_TOKEN`, else one that is made once per user.

    So roles that one user starts on one host find each other; on several hosts the variable has to be set.
    """
    token = environment.get(CLUSTER_TOKEN_VARIABLE)
    if token:
        return token
    path = home_directory(environment) / "cluster-token"
    # Written aside and linked: of two roles that start together, both read the one that was first.
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.touch(mode=0o600)
    try:
        fresh.write_text(secrets.token_hex(16))
        path.hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return path.read_text()
