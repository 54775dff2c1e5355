"""The SDK against the real application: same data, same errors, and one clear error for what does not answer."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.schemas import Groups, Node, Portrait, PortraitHistory, Routing, TierStats, Window
from api.sdk import GeartrainClient
from api.testing import FakeFacade, InProcessTransport
from geartrain.errors import (
    AuthError,
    ConfigError,
    ConflictError,
    DataFileError,
    DeadlineError,
    GeartrainError,
    NotFoundError,
    WireError,
)


@pytest.fixture
def client(facade: FakeFacade) -> Iterator[GeartrainClient]:
    app = create_app(facade, api_token="token")
    with GeartrainClient("http://coordinator/", "token", transport=InProcessTransport(app)) as connected:
        yield connected


def scripted(*answers: Any) -> tuple[GeartrainClient, list[httpx.Request], list[float]]:
    """A client of a server that gives these answers in turn, the requests it gets, and the pauses the client makes."""
    remaining, requests, pauses = iter(answers), [], []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        given = next(remaining)
        if isinstance(given, Exception):
            raise given
        return given

    client = GeartrainClient("http://coordinator", transport=httpx.MockTransport(answer), pause=pauses.append)
    return client, requests, pauses


class BrokenStream(httpx.SyncByteStream):
    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        yield from self._parts
        raise httpx.RemoteProtocolError("peer closed connection")


def test_a_job_from_submission_to_its_end(client: GeartrainClient, facade: FakeFacade) -> None:
    assert client.submit({"name": "x"}) == {"id": "job-1", "state": "queued"}
    assert facade.configs == [{"name": "x"}]
    assert facade.tasks == [{}]
    assert client.job("job-1")["state"] == "queued"
    assert [job["id"] for job in client.jobs()] == ["job-1"]
    assert client.metrics("job-1") == facade.points
    assert client.metrics("job-1", since=facade.points[0]["time"]) == []
    assert client.cancel("job-1")["state"] == "cancelled"
    with pytest.raises(ConflictError) as caught:
        client.cancel("job-1")
    assert caught.value.facts == {"job": "job-1", "state": "cancelled"}


def test_a_task_is_handed_over_with_its_config(client: GeartrainClient, facade: FakeFacade) -> None:
    client.submit({"name": "x"}, {"kind": "evaluate", "checkpoint": "runs/a", "split": "valid"})
    assert facade.tasks == [{"kind": "evaluate", "checkpoint": "runs/a", "split": "valid"}]


def test_the_cluster(client: GeartrainClient, facade: FakeFacade) -> None:
    assert client.nodes() == [Node.example]
    assert client.portraits() == [Portrait.example]
    assert client.portrait("w0") == PortraitHistory.example
    assert client.groups() == Groups.example
    assert client.window() == Window.example
    assert client.routing() == Routing.example
    assert client.tier_stats() == TierStats.example
    assert client.health()["control"] == facade.control_address()
    assert client.ready() == (True, "1 of 1 workers registered")
    facade.ready = (False, "1 of 2 servers registered")
    assert client.ready() == (False, "1 of 2 servers registered")


def test_what_a_person_can_set(client: GeartrainClient, facade: FakeFacade) -> None:
    shown = client.put_portrait("w0", 1234.5)
    assert (shown["samples_per_s"], shown["source"]) == (1234.5, "set")
    assert client.portraits()[0]["samples_per_s"] == 1234.5
    assert client.set_window(window_ms=30)["window_ms"] == 30
    shown = client.set_window("async", window_ms="auto")
    assert (shown["mode"], shown["window_ms"]) == ("async", "auto") == (client.window()["mode"], "auto")
    facade.window_now = None
    with pytest.raises(ConflictError):
        client.set_window("sync")


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.put_portrait("w0", 0), "samples_per_s"),
        (lambda client: client.put_portrait("w0", float("nan")), "samples_per_s"),
        (lambda client: client.put_portrait("w0", object()), "samples_per_s"),
        (lambda client: client.set_window("slow"), "mode"),
        (lambda client: client.set_window(window_ms=float("inf")), "window_ms"),
        (lambda client: client.set_window(window_ms=-1), "window_ms"),
        (lambda client: client.set_window(), "body"),
    ],
)
def test_what_cannot_be_set_names_the_field(
    client: GeartrainClient, call: Callable[[GeartrainClient], Any], field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        call(client)
    assert caught.value.facts["field"] == field


def test_an_unknown_worker_is_not_found_by_its_own_name(client: GeartrainClient) -> None:
    for call in (client.portrait, lambda worker: client.put_portrait(worker, 1.0)):
        with pytest.raises(NotFoundError, match="there is no worker w 0#%2f"):
            call("w 0#%2f")


def test_errors_are_those_that_the_coordinator_raised(client: GeartrainClient, facade: FakeFacade) -> None:
    with pytest.raises(NotFoundError, match="there is no job a b"):
        client.job("a b?c#d%2e")
    facade.failure = DataFileError("no such file", file="a.csv", field="data.train")
    with pytest.raises(DataFileError) as caught:
        client.submit({})
    assert (caught.value.facts, caught.value.exit_status) == ({"file": "a.csv", "field": "data.train"}, 2)


def test_an_error_of_a_newer_coordinator_keeps_its_code() -> None:
    client, _, _ = scripted(httpx.Response(418, json={"error": {"code": "teapot", "message": "short and stout"}}))
    with pytest.raises(GeartrainError, match="short and stout") as caught:
        client.jobs()
    assert caught.value.facts == {"original_code": "teapot"}


def test_a_wrong_token_is_an_auth_error(facade: FakeFacade) -> None:
    transport = InProcessTransport(create_app(facade, api_token="token"))
    for token in (None, "other"):
        with pytest.raises(AuthError):
            GeartrainClient("http://coordinator", token, transport=transport).jobs()


@pytest.mark.parametrize("config", [{"when": datetime.date(2026, 1, 1)}, {"lr": float("nan")}])
def test_a_config_that_json_cannot_carry_is_refused_here(client: GeartrainClient, config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be sent"):
        client.submit(config)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "localhost", "ftp://x", "http://", "http://a:x", "http://a:99999", "", "redis://x:1"]
)
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http://127"):
        GeartrainClient(url)


def test_a_token_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError):
        GeartrainClient("http://coordinator", "a\nb")


@pytest.mark.parametrize(
    "failure",
    [httpx.ConnectError("[Errno 111] Connection refused"), httpx.ReadTimeout(""), UnicodeError("label too long")],
)
def test_no_answer_is_one_line_with_the_address(failure: Exception) -> None:
    client, _, _ = scripted(failure)
    with pytest.raises(DeadlineError, match="the coordinator at http://coordinator does not answer") as caught:
        client.jobs()
    assert "\n" not in caught.value.message
    assert caught.value.facts == {"role": "coordinator", "address": "http://coordinator", "deadline_s": 30.0}


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(502, html="<h1>Bad gateway</h1>"),
        httpx.Response(200, html="<h1>Welcome</h1>"),
        httpx.Response(200, json={"jobs": []}),
        httpx.Response(500, json=["error"]),
        httpx.Response(500, json={"error": "no"}),
        httpx.Response(200, content=b"\xff"),
    ],
)
def test_an_answer_of_something_else_says_so(answer: httpx.Response) -> None:
    client, _, _ = scripted(answer)
    with pytest.raises(WireError, match="not answered by a Geartrain coordinator: status"):
        client.jobs()


def test_wait_looks_until_the_job_has_ended(facade: FakeFacade) -> None:
    job = facade.add_job("a", "queued")
    states = iter(["queued", "training", "training", "failed"])
    facade.on_look = lambda: job.update(state=next(states))
    pauses: list[float] = []
    transport = InProcessTransport(create_app(facade, api_token=None))
    client = GeartrainClient("http://coordinator", transport=transport, pause=pauses.append)
    seen: list[str] = []
    ended = client.wait("a", lambda status: seen.append(status["state"]), poll_s=0.2)
    assert ended["state"] == "failed"
    assert seen == ["queued", "training", "training", "failed"]
    assert pauses == [0.2] * 3


def test_events_until_the_end(client: GeartrainClient, facade: FakeFacade) -> None:
    facade.add_job("a", "succeeded")
    facade.add_event("a", "started", "line\u2028line")
    facade.add_event("a", "done")
    assert list(client.events("a")) == facade.event_table["a"]
    assert list(client.events("a", after=1)) == facade.event_table["a"][1:]
    assert list(client.events("a", after=2)) == []
    with pytest.raises(NotFoundError):
        list(client.events("b"))


def message(number: int) -> bytes:
    return f"id: {number}\ndata: {json.dumps({'number': number})}\n\n".encode()


def test_a_broken_stream_is_resumed_where_it_broke() -> None:
    half = message(3)
    client, requests, pauses = scripted(
        httpx.Response(200, stream=BrokenStream(message(1), b": still running\n\n" + message(2), half[:9])),
        httpx.Response(200, content=message(3)),
        httpx.Response(200, content=message(4) + b"event: end\ndata: {}\n\n" + message(5)),
    )
    assert [event["number"] for event in client.events("a", reconnect_s=0.7)] == [1, 2, 3, 4]
    assert [request.headers["Last-Event-ID"] for request in requests] == ["0", "2", "3"]
    assert pauses == [0.7, 0.7]


def test_a_stream_that_cannot_be_resumed_is_an_error() -> None:
    client, _, _ = scripted(httpx.Response(200, stream=BrokenStream(message(1))), httpx.ConnectError("refused"))
    events = client.events("a")
    assert next(events)["number"] == 1
    with pytest.raises(DeadlineError):
        next(events)


def test_the_environment_does_not_divert_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    client, requests, _ = scripted(httpx.Response(200, json=[]))
    assert client.jobs() == []
    assert requests[0].url.host == "coordinator"
