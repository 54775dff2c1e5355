"""How a node finds the coordinator's control channel, and the address under which others can reach the node."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

import httpx

from geartrain.errors import DeadlineError

_RETRY_S = 0.25


def find_control_address(coordinator: str, deadline_s: float) -> str:
    """Ask the coordinator's HTTP address HOST:PORT for its control address, until it answers or the deadline is over.

    Where the coordinator listens on all interfaces, the control address has the host under which it answered. Raises
    `DeadlineError` naming the coordinator: nodes may be started before it.
    """
    url = f"http://{coordinator}/healthz"
    end_s = time.monotonic() + deadline_s
    pause = threading.Event()
    while True:
        try:
            # Proxies of the environment are for the internet.
            answer = httpx.get(url, timeout=2.0, trust_env=False)
            return reachable(str(answer.raise_for_status().json()["control"]), coordinator.rpartition(":")[0])
        except (httpx.HTTPError, KeyError, ValueError) as error:
            if time.monotonic() > end_s:
                raise DeadlineError(
                    f"no coordinator answered at {url} within {deadline_s:g} s: {error}",
                    role="coordinator",
                    address=coordinator,
                    deadline_s=deadline_s,
                ) from error
        pause.wait(_RETRY_S)


def reachable(bound: str, host: str) -> str:
    """The address under which others reach what was bound: `host` in place of a wildcard."""
    for wildcard in ("0.0.0.0", "[::]"):
        bound = bound.replace(f"//{wildcard}:", f"//{host}:")
    return bound


def local_host_towards(control_address: str) -> str:
    """The address of this host on the way to the coordinator: loopback when the coordinator is on this host."""
    if not control_address.startswith("tcp://"):
        return "127.0.0.1"
    parts = urlsplit(control_address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 1))
        return str(probe.getsockname()[0])
