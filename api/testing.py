"""Doubles for tests of what stands on the API: a coordinator without a cluster, and calls without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import httpx
from starlette.types import ASGIApp

from api.schemas import Event, Groups, Job, MetricsPoint, Node, Portrait, PortraitHistory, Routing, TierStats, Window
from geartrain.errors import ConflictError, NotFoundError
from geartrain.job_states import ENDED_STATES


class FakeFacade:
    """A `ClusterFacade` over plain lists that a test fills and reads.

    `failure` is raised by every method while it is set. `on_look` is called at each look at one job, before it is
    answered, so that a test can make something happen between two looks.
    """

    def __init__(self) -> None:
        self.configs: list[dict[str, Any]] = []
        self.tasks: list[dict[str, Any] | None] = []
        self.job_table: dict[str, dict[str, Any]] = {}
        self.event_table: dict[str, list[dict[str, Any]]] = {}
        self.points: list[dict[str, Any]] = [deepcopy(MetricsPoint.example)]
        self.node_list: list[dict[str, Any]] = [deepcopy(Node.example)]
        self.portrait_list: list[dict[str, Any]] = [deepcopy(Portrait.example)]
        self.groups_now: dict[str, Any] = deepcopy(Groups.example)
        self.window_now: dict[str, Any] | None = deepcopy(Window.example)
        self.tier_now: dict[str, Any] = deepcopy(TierStats.example)
        self.ready: tuple[bool, str] = (True, "1 of 1 workers registered")
        self.failure: Exception | None = None
        self.on_look: Callable[[], None] = lambda: None

    def add_job(self, job: str, state: str = "training") -> dict[str, Any]:
        """A job of this id; the returned dict is the live one."""
        fields = {**deepcopy(Job.example), "id": job, "state": state, "reason": "", "error": None, "result": None}
        self.job_table[job] = fields
        self.event_table[job] = []
        return fields

    def add_event(self, job: str, kind: str, message: str = "") -> None:
        events = self.event_table[job]
        events.append({**Event.example, "number": len(events) + 1, "kind": kind, "message": message})

    def submit(self, config: dict[str, Any], task: dict[str, Any] | None = None) -> dict[str, Any]:
        self._fail_if_asked_to()
        self.configs.append(config)
        self.tasks.append(task)
        job = self.add_job(f"job-{len(self.configs)}", "queued")
        return {"id": job["id"], "state": job["state"]}

    def jobs(self) -> list[dict[str, Any]]:
        self._fail_if_asked_to()
        return list(self.job_table.values())

    def job(self, job: str) -> dict[str, Any]:
        self._fail_if_asked_to()
        self.on_look()
        return self._known(job)

    def cancel(self, job: str) -> dict[str, Any]:
        self._fail_if_asked_to()
        fields = self._known(job)
        if fields["state"] in ENDED_STATES:
            raise ConflictError(f"job {job} has ended: {fields['state']}", job=job, state=fields["state"])
        fields.update(state="cancelled", reason="cancelled by a call")
        return fields

    def metrics(self, job: str, since: float) -> list[dict[str, Any]]:
        self._fail_if_asked_to()
        self._known(job)
        return [point for point in self.points if point["time"] > since]

    def events(self, job: str, after: int) -> list[dict[str, Any]]:
        self._fail_if_asked_to()
        self._known(job)
        return [event for event in self.event_table[job] if event["number"] > after]

    def nodes(self) -> list[dict[str, Any]]:
        self._fail_if_asked_to()
        return self.node_list

    def window(self) -> dict[str, Any]:
        self._fail_if_asked_to()
        if self.window_now is None:
            raise ConflictError("no job is running")
        return self.window_now

    def set_window(self, settings: dict[str, Any]) -> dict[str, Any]:
        window = self.window()
        window.update(settings)
        return window

    def portraits(self) -> list[dict[str, Any]]:
        self._fail_if_asked_to()
        return self.portrait_list

    def portrait(self, worker: str) -> dict[str, Any]:
        return {**self._portrait_of(worker), "history": deepcopy(PortraitHistory.example["history"])}

    def put_portrait(self, worker: str, samples_per_s: float) -> dict[str, Any]:
        portrait = self._portrait_of(worker)
        portrait.update(source="set", samples_per_s=samples_per_s, reason=f"{samples_per_s:g} samples/s set by a call")
        return portrait

    def groups(self) -> dict[str, Any]:
        self._fail_if_asked_to()
        return self.groups_now

    def routing(self) -> dict[str, Any]:
        self._fail_if_asked_to()
        return deepcopy(Routing.example)

    def tier_stats(self) -> dict[str, Any]:
        self._fail_if_asked_to()
        return self.tier_now

    def readiness(self) -> tuple[bool, str]:
        self._fail_if_asked_to()
        return self.ready

    def control_address(self) -> str:
        self._fail_if_asked_to()
        return "tcp://127.0.0.1:41234"

    def _portrait_of(self, worker: str) -> dict[str, Any]:
        self._fail_if_asked_to()
        for portrait in self.portrait_list:
            if portrait["worker"] == worker:
                return portrait
        raise NotFoundError(f"there is no worker {worker}", worker=worker)

    def _known(self, job: str) -> dict[str, Any]:
        if job not in self.job_table:
            raise NotFoundError(f"there is no job {job}", job=job)
        return self.job_table[job]

    def _fail_if_asked_to(self) -> None:
        if self.failure is not None:
            raise self.failure


class InProcessTransport(httpx.BaseTransport):
    """Hands requests of a blocking httpx client to an ASGI application. A stream is read to its end first."""

    def __init__(self, app: ASGIApp) -> None:
        self._transport = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._handle(request))

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        copy = httpx.Request(request.method, request.url, headers=request.headers.raw, content=body)
        response = await self._transport.handle_async_request(copy)
        return httpx.Response(response.status_code, headers=response.headers.raw, content=await response.aread())
