"""Python client of the REST interface. It needs no web framework and no part of the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, cast
from urllib.parse import quote

import httpx

from api.connection import Connection
from api.request_errors import NotReadyError
from geartrain.errors import ConfigError
from geartrain.job_states import ENDED_STATES


class GeartrainClient:
    """Calls to one coordinator.

    Answers are the plain data of the REST interface. Errors are raised as the classes of `geartrain.errors` that the
    coordinator raised. A coordinator that does not answer within `deadline_s` is a `DeadlineError`, and an answer that
    is not Geartrain's a `WireError`. `transport` and `pause` replace network and clock.
    """

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        *,
        deadline_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = Connection(base_url, token, deadline_s, transport)
        self._pause = pause

    def __enter__(self) -> GeartrainClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are kept open between calls."""
        self._connection.close()

    def submit(self, config: dict[str, Any], task: dict[str, str] | None = None) -> dict[str, Any]:
        """Queue a job; `{"id", "state"}`. Raises `ConfigError`, `DataFileError` or `CheckpointError`.

        `task`: what to do when it is not to train from the beginning; see `SubmitRequest` in the OpenAPI document.
        """
        return self._send("POST", "/v1/jobs", {"config": config, "task": task or {}}, "config")

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, oldest first."""
        return self._list("/v1/jobs")

    def job(self, job: str) -> dict[str, Any]:
        """One job. Raises `NotFoundError`."""
        return self._object("GET", _job_path(job))

    def cancel(self, job: str) -> dict[str, Any]:
        """Cancel a job; the job as it is then. Raises `NotFoundError`, or `ConflictError` if it has ended."""
        return self._object("DELETE", _job_path(job))

    def wait(
        self, job: str, on_progress: Callable[[dict[str, Any]], None] | None = None, *, poll_s: float = 0.5
    ) -> dict[str, Any]:
        """The job once it has ended, however it ended. `on_progress` gets it at each look, the last one included."""
        while True:
            status = self.job(job)
            if on_progress is not None:
                on_progress(status)
            if status["state"] in ENDED_STATES:
                return status
            self._pause(poll_s)

    def metrics(self, job: str, since: float = 0.0) -> list[dict[str, Any]]:
        """Time series points after Unix time `since`, in seconds."""
        return self._list(f"{_job_path(job)}/metrics", params={"since": since})

    def events(self, job: str, after: int = 0, *, reconnect_s: float = 1.0) -> Iterator[dict[str, Any]]:
        """Events after number `after`, as they come, until the job has ended.

        A connection that breaks is made again after `reconnect_s`, from the last event on; `DeadlineError` if it
        cannot be made.
        """
        while True:
            for kind, data in self._connection.messages(f"{_job_path(job)}/events", after):
                if kind == "end":
                    return
                event = json.loads(data)
                after = event["number"]
                yield event
            self._pause(reconnect_s)

    def nodes(self) -> list[dict[str, Any]]:
        """Every server and worker."""
        return self._list("/v1/nodes")

    def window(self) -> dict[str, Any]:
        """The aggregation window of the running job. Raises `ConflictError` without one."""
        return self._object("GET", "/v1/window")

    def set_window(self, mode: str | None = None, window_ms: float | str | None = None) -> dict[str, Any]:
        """Change the running job's window: `mode` sync, async or hybrid; `window_ms` in milliseconds, or "auto". The
        window as it is then. Raises `ConflictError` without a job that trains, or `ConfigError`."""
        settings = {"mode": mode, "window_ms": window_ms}
        return self._send("PUT", "/v1/window", settings, "window_ms")

    def portraits(self) -> list[dict[str, Any]]:
        """What was measured of each worker."""
        return self._list("/v1/portraits")

    def portrait(self, worker: str) -> dict[str, Any]:
        """One worker's portrait, with its `history`. Raises `NotFoundError`."""
        return self._object("GET", _portrait_path(worker))

    def put_portrait(self, worker: str, samples_per_s: float) -> dict[str, Any]:
        """Set the speed that a worker is taken to have until its steps tell better; the portrait as it is then.

        Raises `NotFoundError`, or `ConfigError` for what is no speed.
        """
        return self._send("PUT", _portrait_path(worker), {"samples_per_s": samples_per_s}, "samples_per_s")

    def groups(self) -> dict[str, Any]:
        """The groups of the running job, their shares, and why they are as they are; no groups without such a job."""
        return self._object("GET", "/v1/groups")

    def routing(self) -> dict[str, Any]:
        """Shards per server."""
        return self._object("GET", "/v1/routing")

    def tier_stats(self) -> dict[str, Any]:
        """Rows, memory and traffic of the embedding tier."""
        return self._object("GET", "/v1/embedding-tier/stats")

    def health(self) -> dict[str, Any]:
        """`{"status", "control"}`: the coordinator lives, and nodes register at `control`."""
        return self._object("GET", "/healthz")

    def ready(self) -> tuple[bool, str]:
        """Whether jobs can be run now, and why (not)."""
        try:
            return True, str(self._object("GET", "/readyz")["reason"])
        except NotReadyError as error:
            return False, error.message

    def _send(self, method: str, path: str, body: dict[str, Any], field: str) -> dict[str, Any]:
        """A call with a JSON body. `ConfigError` that names `field` if JSON cannot carry it."""
        try:
            content = json.dumps(body, allow_nan=False)
        except (TypeError, ValueError) as error:
            expected = "values that JSON can carry"
            raise ConfigError(f"the {field} cannot be sent: {error}", field=field, expected=expected) from error
        return self._object(method, path, content=content, headers={"Content-Type": "application/json"})

    def _object(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        return cast(dict[str, Any], self._connection.call(method, path, dict, **request))

    def _list(self, path: str, **request: Any) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self._connection.call("GET", path, list, **request))


def _job_path(job: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}"


def _portrait_path(worker: str) -> str:
    return f"/v1/portraits/{quote(worker, safe='')}"
