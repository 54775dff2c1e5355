"""Serving the REST application from a thread of the coordinator's process."""

from __future__ import annotations

import errno
import logging
import socket
import threading

import uvicorn
from fastapi import FastAPI

from api.app import close_streams
from geartrain.errors import ConfigError, GeartrainError, PortInUseError

logger = logging.getLogger("geartrain.api")

GRACE_S = 2
"""How long calls under way may go on once the server is being stopped."""

_BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one.

    Raises `PortInUseError` if another process has the port, and `ConfigError` if the address cannot be listened on.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if not 0 <= port <= 65535:
            # The resolver would take it modulo 65536.
            raise OverflowError("a port is a number from 0 to 65535")
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            # A port that only holds connections of an earlier process that are dying off counts as free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise _cannot_listen(address, error) from error
    return listener


def _cannot_listen(address: str, error: Exception) -> GeartrainError:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return PortInUseError(f"cannot listen on {address}: the port is in use", address=address)
    expected = "HOST:PORT of this machine that may be listened on"
    return ConfigError(f"cannot listen on {address}: {error}", field="listen", value=address, expected=expected)


class _AnnouncingServer(uvicorn.Server):
    """Tells when it has started, or has given up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.settled.set()


class ApiServer:
    """Serves `app` on `host`:`port` from `start` to `stop`; the port is taken from construction on.

    Raises `PortInUseError` or `ConfigError` (see `listen`), so that a wrong address is known before any role starts.
    """

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        self._app = app
        self._listener = listen(host, port)
        self._server = _AnnouncingServer(
            uvicorn.Config(
                app,
                http="h11",
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._failure: BaseException | None = None
        # Outside the main thread uvicorn installs no signal handlers: signals stay the coordinator's.
        self._thread = threading.Thread(target=self._run, name="geartrain-api", daemon=True)

    @property
    def port(self) -> int:
        """The actual port, also where 0 was asked for."""
        return int(self._listener.getsockname()[1])

    def start(self) -> int:
        """Begin to answer; the actual port. Raises `GeartrainError` if the server cannot run."""
        port = self.port
        self._thread.start()
        self._server.settled.wait()
        if self._failure is not None:
            self._listener.close()
            raise GeartrainError(f"the API server did not start: {self._failure!r}") from self._failure
        return port

    def stop(self) -> None:
        """End event streams, let calls under way finish within `GRACE_S`, and free the port. Doing it twice is fine."""
        close_streams(self._app)
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(2 * GRACE_S + 1)
            if self._thread.is_alive():
                logger.warning("the API server still waits for a call to the coordinator; it ends with the process")
        self._listener.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:
            # uvicorn leaves by SystemExit when it cannot start; either way `start` or the log must tell.
            self._failure = error
            logger.exception("the API server ended")
        finally:
            self._server.settled.set()
