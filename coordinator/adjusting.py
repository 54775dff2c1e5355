"""What people may change of a cluster while it works: the speed a worker is taken to have, and how windows close."""

from __future__ import annotations

from typing import Any

from coordinator.commands import Command
from coordinator.core import Core
from coordinator.portrait_book import check_speed
from geartrain.errors import ConflictError, NotFoundError


def put_portrait(core: Core, worker: str, samples_per_s: float, now_s: float) -> list[Command]:
    """Set the speed of a worker: for the running job at once, else for the next one to begin with.

    Raises `NotFoundError` for a worker that the cluster does not have, `ConfigError` for what is no speed.
    """
    if not any(node.name == worker and node.role == "worker" for node in core.members.all_nodes()):
        names = [node.name for node in core.members.joined("worker")]
        raise NotFoundError(f"there is no worker {worker!r}, there are {names}", field="worker", value=worker)
    check_speed(samples_per_s)
    if core.run is not None and core.run.matcher is not None:
        return core.run.put_portrait(worker, samples_per_s, now_s)
    core.portraits.starting_speeds[worker] = samples_per_s
    return []


def change_window(core: Core, settings: dict[str, Any], now_s: float) -> list[Command]:
    """Let the running job's windows close by other settings (`mode`, `window_ms`: milliseconds or "auto").

    Raises `ConflictError` without a job that trains, `ConfigError` for a value that cannot be.
    """
    if core.run is None:
        raise ConflictError("no job is training: there is no window", expected="a job in state training")
    changes = {name: None if value == "auto" else value for name, value in settings.items()}
    return core.run.change_window(changes, now_s)
