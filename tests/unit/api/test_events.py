"""Event streams: what is sent, when they end, and how they are resumed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from api.events import StreamControl, job_event_stream
from api.testing import FakeFacade
from geartrain.errors import NotFoundError


def collect(facade: FakeFacade, after: int, control: StreamControl) -> list[str]:
    async def run() -> list[str]:
        return [message async for message in job_event_stream(facade, "a", after, control)]

    return asyncio.run(run())


def happening(*steps: Any) -> StreamControl:
    """A control whose pauses each make the next of `steps` happen, and take no time."""
    remaining = iter(steps)

    async def pause(_seconds: float) -> None:
        next(remaining)()

    return StreamControl(poll_s=0.25, keep_alive_s=1.0, pause=pause)


def numbers(text: str) -> list[int]:
    return [json.loads(line[6:])["number"] for line in text.splitlines() if line.startswith('data: {"number"')]


def test_events_come_as_they_happen_and_the_stream_ends_with_the_job(facade: FakeFacade) -> None:
    job = facade.add_job("a")
    facade.add_event("a", "started")
    control = happening(
        lambda: (facade.add_event("a", "pass_done"), facade.add_event("a", "evaluated")),
        lambda: (facade.add_event("a", "done"), job.update(state="succeeded", reason="3 of 3 passes")),
    )
    messages = collect(facade, 0, control)
    assert numbers("".join(messages)) == [1, 2, 3, 4]
    assert [message.split("\n")[0] for message in messages[:-1]] == ["id: 1", "id: 2", "id: 3", "id: 4"]
    assert messages[-1] == 'event: end\ndata: {"state":"succeeded","reason":"3 of 3 passes"}\n\n'


def test_an_event_that_is_written_after_the_end_of_the_job_was_seen_is_not_lost(facade: FakeFacade) -> None:
    job = facade.add_job("a")
    looks = 0

    def end_then_tell() -> None:
        nonlocal looks
        looks += 1
        job["state"] = "failed"
        if looks <= 2:
            facade.add_event("a", "late")

    facade.on_look = end_then_tell
    messages = collect(facade, 0, happening())
    assert numbers("".join(messages)) == [1, 2]
    assert messages[-1].startswith("event: end")


def test_a_silent_stream_is_kept_alive(facade: FakeFacade) -> None:
    job = facade.add_job("a")
    waits = [lambda: None] * 9
    messages = collect(facade, 0, happening(*waits, lambda: job.update(state="cancelled")))
    # 10 pauses of 0.25 s, and a comment for each whole second of silence.
    assert messages[:-1] == [": still running\n\n"] * 2


def test_closing_ends_the_streams_of_jobs_that_run_on(facade: FakeFacade) -> None:
    facade.add_job("a")
    facade.add_event("a", "started")
    control = happening()
    facade.on_look = control.closing.set
    assert numbers("".join(collect(facade, 0, control))) == [1]


def test_a_job_that_vanishes_breaks_the_stream_instead_of_ending_it(facade: FakeFacade) -> None:
    facade.add_job("a")
    with pytest.raises(NotFoundError):
        collect(facade, 0, happening(facade.job_table.clear))


def test_the_call_resumes_after_the_last_event_that_was_seen(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a", "succeeded")
    for kind in ("started", "evaluated", "done"):
        facade.add_event("a", kind)
    whole = http.get("/v1/jobs/a/events")
    assert whole.headers["Content-Type"].startswith("text/event-stream")
    assert whole.headers["Cache-Control"] == "no-cache"
    assert numbers(whole.text) == [1, 2, 3]
    rest = http.get("/v1/jobs/a/events", headers={"Last-Event-ID": "1"})
    assert numbers(rest.text) == [2, 3]
    assert rest.text.endswith('event: end\ndata: {"state":"succeeded","reason":""}\n\n')


def test_who_has_seen_all_is_told_not_to_come_again(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a", "succeeded")
    facade.add_event("a", "done")
    response = http.get("/v1/jobs/a/events", headers={"Last-Event-ID": "1"})
    assert (response.status_code, response.content) == (204, b"")


def test_a_job_without_events_has_a_stream_that_just_ends(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a", "cancelled")
    response = http.get("/v1/jobs/a/events")
    assert (response.status_code, response.text.count("\n\n")) == (200, 1)


@pytest.mark.parametrize("number", ["-1", "x", "1.5", str(2**63), "9" * 5000])
def test_last_event_id_must_be_a_number_of_an_event(http: httpx.Client, facade: FakeFacade, number: str) -> None:
    facade.add_job("a", "succeeded")
    response = http.get("/v1/jobs/a/events", headers={"Last-Event-ID": number})
    assert response.status_code == 422
    assert response.json()["error"]["field"] == "last-event-id"


def test_texts_cannot_break_out_of_their_message(http: httpx.Client, facade: FakeFacade) -> None:
    message = "two\nlines\r\n\nevent: end\ndata: {}\n\n\u2028 and \ud800"
    facade.add_job("a", "succeeded")
    facade.add_event("a", "odd", message)
    text = http.get("/v1/jobs/a/events").text
    assert text.count("\n\n") == 2
    told = json.loads(text.split("\n")[1].removeprefix("data: "))
    assert told["message"] == message.replace("\ud800", "\ufffd")
