"""Portraits, groups and the window: what can be set by a call, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.app import create_app
from api.testing import FakeFacade, InProcessTransport

JSON = {"Content-Type": "application/json"}


def put(http: httpx.Client, path: str, body: Any) -> httpx.Response:
    return http.put(path, content=json.dumps(body), headers=JSON)


def error_of(response: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    return error


def test_a_portrait_is_set_and_then_told(http: httpx.Client) -> None:
    response = put(http, "/v1/portraits/w0", {"samples_per_s": 3000})
    assert response.status_code == 200
    assert (response.json()["samples_per_s"], response.json()["source"]) == (3000.0, "set")
    assert http.get("/v1/portraits").json() == [response.json()]
    shown = http.get("/v1/portraits/w0").json()
    assert [one["source"] for one in shown.pop("history")] == ["probed"]
    assert shown == response.json()


@pytest.mark.parametrize("worker", ["w9", "w%2F0", "%00", "W0"])
def test_an_unknown_worker_is_not_found(http: httpx.Client, facade: FakeFacade, worker: str) -> None:
    before = json.dumps(facade.portrait_list)
    for response in (http.get(f"/v1/portraits/{worker}"), put(http, f"/v1/portraits/{worker}", {"samples_per_s": 1})):
        assert (response.status_code, error_of(response)["code"]) == (404, "not_found")
    assert json.dumps(facade.portrait_list) == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "samples_per_s"),
        ({"samples_per_s": None}, "samples_per_s"),
        ({"samples_per_s": 0}, "samples_per_s"),
        ({"samples_per_s": -5.0}, "samples_per_s"),
        ({"samples_per_s": "3000"}, "samples_per_s"),
        ({"samples_per_s": True}, "samples_per_s"),
        ({"samples_per_s": 10**400}, "samples_per_s"),
        ({"samples_per_s": 1e-300}, "samples_per_s"),
        ({"samples_per_s": 1, "cost": {}}, "cost"),
        ([], "body"),
        (3000, "body"),
    ],
)
def test_what_is_no_speed_names_the_field(http: httpx.Client, facade: FakeFacade, body: Any, field: str) -> None:
    response = put(http, "/v1/portraits/w0", body)
    assert response.status_code == 422
    assert (error_of(response)["code"], error_of(response)["field"]) == ("config_invalid", field)
    assert facade.portrait_list[0]["source"] == "steps"


def test_a_fault_says_what_is_expected_in_the_words_of_the_config(http: httpx.Client) -> None:
    error = error_of(put(http, "/v1/portraits/w0", {"samples_per_s": 0}))
    assert error["message"] == "samples_per_s: expected a number > 0"
    assert (error["expected"], error["value"]) == ("a number > 0", 0)


@pytest.mark.parametrize(
    "change",
    [{"mode": "async"}, {"window_ms": 0}, {"window_ms": 12.5}, {"window_ms": "auto"}, {"mode": "sync", "window_ms": 3}],
)
def test_what_is_given_of_the_window_changes_and_nothing_else(
    http: httpx.Client, facade: FakeFacade, change: dict[str, Any]
) -> None:
    assert facade.window_now is not None
    facade.window_now["window_ms"] = 40.0
    before = dict(facade.window_now)
    response = put(http, "/v1/window", change)
    assert response.status_code == 200
    assert response.json() == http.get("/v1/window").json() == {**before, **change}


def test_null_leaves_a_setting_of_the_window_as_it_is(http: httpx.Client) -> None:
    shown = put(http, "/v1/window", {"mode": "async", "window_ms": None}).json()
    assert (shown["mode"], shown["window_ms"]) == ("async", "auto")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"mode": None}, "body"),
        ({"mode": "fast"}, "mode"),
        ({"mode": 1}, "mode"),
        ({"window_ms": -1}, "window_ms"),
        ({"window_ms": "long"}, "window_ms"),
        ({"window_ms": True}, "window_ms"),
        ({"window_ms": [5]}, "window_ms"),
        ({"window_ms": 10**400}, "window_ms"),
        ({"window_ms": 5, "staleness_decay": 0.5}, "staleness_decay"),
        ("auto", "body"),
    ],
)
def test_a_window_that_cannot_be_names_the_field(http: httpx.Client, facade: FakeFacade, body: Any, field: str) -> None:
    before = json.dumps(facade.window_now)
    response = put(http, "/v1/window", body)
    assert response.status_code == 422
    assert (error_of(response)["code"], error_of(response)["field"]) == ("config_invalid", field)
    assert json.dumps(facade.window_now) == before


def test_without_a_job_the_window_cannot_be_set(http: httpx.Client, facade: FakeFacade) -> None:
    facade.window_now = None
    response = put(http, "/v1/window", {"mode": "sync"})
    assert (response.status_code, error_of(response)["code"]) == (409, "conflict")


def test_without_a_job_there_are_no_groups_and_no_error(http: httpx.Client, facade: FakeFacade) -> None:
    nothing = {"job": None, "generation": 0, "reason": "no job trains", "groups": []}
    facade.groups_now = nothing
    response = http.get("/v1/groups")
    assert (response.status_code, response.json()) == (200, nothing)


def test_a_worker_that_was_only_set_has_no_more_than_its_speed(http: httpx.Client, facade: FakeFacade) -> None:
    cost = {"fixed_s": 0.0, "sample_s": 1 / 3000, "token_s": 0.0, "error": 0.0}
    told = {"worker": "w1", "device": "cpu", "source": "set", "samples_per_s": 3000.0, "cost": cost}
    facade.portrait_list = [{**told, "num_probes": 0, "num_outliers": 0, "measured_at": 1.0, "reason": "set by a call"}]
    shown = http.get("/v1/portraits").json()[0]
    assert {name: shown[name] for name in told} == told
    assert shown["model"] is shown["precision"] is shown["pull_mb_per_s"] is None


@pytest.mark.parametrize("path", ["/v1/portraits/w0", "/v1/window"])
def test_a_page_of_another_origin_cannot_set_anything(http: httpx.Client, facade: FakeFacade, path: str) -> None:
    before = json.dumps([facade.portrait_list, facade.window_now])
    response = http.put(path, content=b'{"samples_per_s": 1}', headers={"Content-Type": "text/plain"})
    assert (response.status_code, error_of(response)["code"]) == (415, "content_type_unsupported")
    assert http.put(path, content=b"{", headers=JSON).status_code == 400
    assert json.dumps([facade.portrait_list, facade.window_now]) == before


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("auto")
bodies = st.dictionaries(st.sampled_from(["samples_per_s", "mode", "window_ms", "x"]), values) | values


@given(bodies, st.sampled_from(["/v1/portraits/w0", "/v1/window"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_put_is_taken_whole_or_refused_by_name(body: Any, path: str) -> None:
    facade = FakeFacade()
    with httpx.Client(transport=InProcessTransport(create_app(facade, api_token=None)), base_url="http://c") as http:
        response = put(http, path, body)
        if response.status_code == 200:
            given_fields = {name: value for name, value in body.items() if value is not None}
            shown = http.get(path).json()
            assert {name: shown[name] for name in given_fields} == given_fields
        else:
            assert response.status_code in (400, 422)
            assert error_of(response)["message"]
