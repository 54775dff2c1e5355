"""The folder for what outlives a command: `$GEARTRAIN_HOME`, else `~/.geartrain`; only its user can read it."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from geartrain.errors import ConfigError

HOME_VARIABLE = "GEARTRAIN_HOME"
CLUSTER_TOKEN_VARIABLE = "GEARTRAIN_CLUSTER_TOKEN"


def home_directory(environment: Mapping[str, str]) -> Path:
    """The folder, made if need be. Raises `ConfigError` when it cannot be."""
    return usable_folder(home_path(environment), HOME_VARIABLE, mode=0o700)


def home_path(environment: Mapping[str, str]) -> Path:
    """Where the folder is, whether it is there or not."""
    chosen = environment.get(HOME_VARIABLE)
    return Path(chosen).resolve() if chosen else Path.home() / ".geartrain"


def usable_folder(folder: Path, field: str, mode: int = 0o777) -> Path:
    """`folder`, made if need be. Raises `ConfigError` when it cannot be made, or files in it cannot."""
    expected = "a folder that can be written"
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(
            dir=folder
        ):  # the system's own words if it refuses: no permission, a read-only disk
            reason = ""
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        raise ConfigError(
            f"{field}: expected {expected}, got {folder} ({reason})", field=field, value=str(folder), expected=expected
        )
    return folder


@contextmanager
def locked_folder(folder: Path, field: str) -> Iterator[None]:
    """Keep `folder` for this process: two runs in it would overwrite each other. Raises `ConfigError` if it is taken.

    The folder itself is locked: nothing is left behind, however the process ends.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = "a folder that no other run writes to"
            message = f"{field}: expected {expected}, got {folder}"
            raise ConfigError(message, field=field, value=str(folder), expected=expected) from None
        yield
    finally:
        os.close(descriptor)


def cluster_token(environment: Mapping[str, str]) -> str:
    """The secret that all roles of a cluster share: `$GEARTRAIN_CLUSTER_TOKEN`, else one that is made once per user.

    So roles that one user starts on one host find each other; on several hosts the variable has to be set.
    """
    token = environment.get(CLUSTER_TOKEN_VARIABLE)
    if token:
        return token
    path = home_directory(environment) / "cluster-token"
    # Written aside and linked: of two roles that start together, both read the one that was first.
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    fresh.touch(mode=0o600, exist_ok=False)
    try:
        fresh.write_text(secrets.token_hex(16))
        path.hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return path.read_text()
