"""An embedding server process: the data plane, the control channel, and the loop between them."""

from __future__ import annotations

import logging
import socket
import time

import zmq

from embedding_tier.control import ServerControl
from embedding_tier.server import TierServer
from geartrain.errors import ConfigError
from geartrain.memory import keep_freed_memory
from geartrain.wire.discovery import find_control_address, local_host_towards, reachable
from geartrain.wire.messages import Register, ServerStats, Shutdown
from geartrain.wire.node_channel import NodeChannel
from geartrain.wire.zmq import RouterServer

START_DEADLINE_S = 120.0
"""How long a server that was started first waits for its coordinator."""
ANSWERING_THREADS = 2
"""Threads that answer requests: while one copies rows, the other may be reading a push."""
WAKE_S = 1.0
"""How often the loop looks up while no message comes."""

_log = logging.getLogger(__name__)


def run(
    *,
    coordinator: str | None,
    control_address: str | None,
    data_address: str | None,
    name: str,
    token: str,
    num_threads: int | None = None,
) -> None:
    """Serve until the coordinator says `Shutdown`.

    `control_address` is the coordinator's control channel; when it is None, the coordinator's API at `coordinator`
    (HOST:PORT) is asked for it. `data_address` is where to listen for workers (default: a free port of the interface
    that leads to the coordinator). `name` is empty unless the launcher fixed it. `num_threads` answer requests, and as
    many apply a large window; None for ANSWERING_THREADS and one.

    Raises `PortInUseError`, `AuthError` for a wrong token, `DeadlineError` when there is no coordinator,
    `RoleDiedError` when it goes away.
    """
    if not (control_address or coordinator):
        raise ConfigError("no coordinator given", field="--coordinator", value="", expected="HOST:PORT")
    control = control_address or find_control_address(coordinator or "", START_DEADLINE_S)
    host = local_host_towards(control)
    _log.info("freed memory: %s", keep_freed_memory())
    incarnation = time.time_ns()  # no two processes of a name have the same, and it fits 63 bits
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    tier = TierServer(token, incarnation)
    transport = RouterServer(context, data_address or f"tcp://{host}:*", tier, num_threads or ANSWERING_THREADS)

    def stats() -> ServerStats | None:
        return tier.stats(transport.queue_length)

    register = Register(
        role="server",
        token=token,
        incarnation=incarnation,
        address=reachable(transport.address, host),
        device="cpu",
        host=socket.gethostname(),
        name=name,
    )
    channel = NodeChannel(control, register, context, stats=stats)
    try:
        welcome = channel.connect(START_DEADLINE_S)
        _serve(channel, ServerControl(welcome.node, incarnation, tier, channel.send, num_threads or 1))
    finally:
        channel.close()
        transport.close()
        tier.close()
        context.term()


def _serve(channel: NodeChannel, control: ServerControl) -> None:
    try:
        while True:
            message = channel.receive(WAKE_S)
            if isinstance(message, Shutdown):
                _log.info("shutdown: %s", message.reason)
                return
            if message is not None and (answer := control.handle(message)) is not None:
                channel.send(answer)
    finally:
        control.stop_snapshot()
