"""A job's events as a server-sent event stream that can be resumed and that ends with the job."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.concurrency import run_in_threadpool

from api.rendering import to_json
from coordinator.facade import ClusterFacade
from geartrain.job_states import ENDED_STATES


@dataclass(frozen=True)
class StreamControl:
    """How event streams of one application look for news, and when they close.

    A stream asks the coordinator every `poll_s`, and writes a comment after `keep_alive_s` without news, which is how
    a connection that nobody reads any more is noticed. Setting `closing` ends all streams at their next look.
    """

    poll_s: float = 0.25
    keep_alive_s: float = 15.0
    closing: threading.Event = field(default_factory=threading.Event)
    pause: Callable[[float], Awaitable[None]] = anyio.sleep


def encode_event(event: dict[str, Any]) -> str:
    """One numbered event; the number is its id, by which a client resumes."""
    return f"id: {event['number']}\ndata: {to_json(event)}\n\n"


def encode_end(state: str, reason: str | None) -> str:
    """The last message of an ended job's stream; it has no id of its own, so that the last event's id stays."""
    return f"event: end\ndata: {to_json({'state': state, 'reason': reason})}\n\n"


async def job_event_stream(facade: ClusterFacade, job: str, after: int, control: StreamControl) -> AsyncIterator[str]:
    """Messages for the events of `job` after number `after`, ending with `encode_end` once the job has ended."""
    silent_s = 0.0
    while not control.closing.is_set():
        # The state is read first: events that came before the end are then in this look or an earlier one.
        status = await run_in_threadpool(facade.job, job)
        events = await run_in_threadpool(facade.events, job, after)
        for event in events:
            after = event["number"]
            yield encode_event(event)
        if events:
            silent_s = 0.0
            continue
        if status["state"] in ENDED_STATES:
            yield encode_end(status["state"], status.get("reason"))
            return
        if silent_s >= control.keep_alive_s:
            silent_s = 0.0
            yield ": still running\n\n"
        await control.pause(control.poll_s)
        silent_s += control.poll_s
