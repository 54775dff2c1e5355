"""Every call: what it hands to the coordinator and how it answers, rightly and wrongly."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest

import api.request_errors as request_errors
from api.schemas import Groups, Node, Portrait, PortraitHistory, Routing, TierStats, Window
from api.testing import FakeFacade
from coordinator.facade import ClusterFacade
from geartrain.config import config_json_schema
from geartrain.errors import BadRowError, ConfigError, DataFileError, GeartrainError, KernelError, RoleDiedError

READS = [
    "/v1/jobs",
    "/v1/jobs/a",
    "/v1/jobs/a/metrics",
    "/v1/jobs/a/events",
    "/v1/nodes",
    "/v1/portraits",
    "/v1/portraits/w0",
    "/v1/groups",
    "/v1/window",
    "/v1/routing",
    "/v1/embedding-tier/stats",
    "/healthz",
    "/readyz",
    "/metrics",
]


def all_errors(kind: type[GeartrainError] = GeartrainError) -> list[type[GeartrainError]]:
    return [kind, *(below for sub in kind.__subclasses__() for below in all_errors(sub))]


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert list(body) == ["error"]
    assert body["error"]["code"]
    assert body["error"]["message"]
    return body["error"]


def test_the_double_has_the_protocol_of_the_coordinator() -> None:
    facade: ClusterFacade = FakeFacade()
    names = [name for name in vars(ClusterFacade) if not name.startswith("_")]
    assert all(callable(getattr(facade, name)) for name in names)


def test_submit_hands_the_config_over_and_answers_where_the_job_is(http: httpx.Client, facade: FakeFacade) -> None:
    response = http.post("/v1/jobs", json={"config": {"name": "x", "training": {"passes": 2}}})
    assert response.status_code == 201
    assert response.json() == {"id": "job-1", "state": "queued"}
    assert response.headers["Location"] == "/v1/jobs/job-1"
    assert facade.configs == [{"name": "x", "training": {"passes": 2}}]
    assert facade.tasks == [{}]
    assert http.get(response.headers["Location"]).json()["id"] == "job-1"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "config"),
        ({"config": 5}, "config"),
        ({"config": {}, "name": "x"}, "name"),
        ([], "body"),
        (None, "body"),
        ({"config": {}, "task": {"kind": 3}}, "task.kind"),
    ],
)
def test_a_body_of_another_shape_names_the_field(http: httpx.Client, facade: FakeFacade, body: Any, field: str) -> None:
    response = http.post("/v1/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    error = error_of(response)
    assert (error["code"], error["field"]) == ("config_invalid", field)
    assert facade.configs == []


def test_a_refused_config_keeps_its_facts(http: httpx.Client, facade: FakeFacade) -> None:
    facade.failure = ConfigError("bad", field="training.batch_size", value=0, expected="at least 1")
    response = http.post("/v1/jobs", json={"config": {}})
    assert response.status_code == 422
    assert error_of(response) == {
        "code": "config_invalid",
        "message": "bad",
        "field": "training.batch_size",
        "value": 0,
        "expected": "at least 1",
    }


def test_a_missing_file_is_unprocessable(http: httpx.Client, facade: FakeFacade) -> None:
    facade.failure = DataFileError("no such file", field="data.train", file="/data/a.csv", expected="a file")
    response = http.post("/v1/jobs", json={"config": {}})
    assert (response.status_code, error_of(response)["code"]) == (422, "data_file_invalid")


def test_jobs_are_listed_in_the_coordinators_order(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("b", "succeeded")
    facade.add_job("a", "queued")
    assert [job["id"] for job in http.get("/v1/jobs").json()] == ["b", "a"]


def test_a_job_is_answered_as_the_coordinator_tells_it(http: httpx.Client, facade: FakeFacade) -> None:
    failure = BadRowError("label", file="a.csv", row=7, column="label").to_dict()
    fields = facade.add_job("a", "failed")
    fields.update(error=failure, result={"job": "a", "valid": {"auc": None}}, reason="bad row", progress=None)
    assert http.get("/v1/jobs/a").json() == fields


def test_cancel_answers_the_job_and_twice_is_a_conflict(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a")
    response = http.delete("/v1/jobs/a")
    assert (response.status_code, response.json()["state"]) == (200, "cancelled")
    again = http.delete("/v1/jobs/a")
    assert (again.status_code, error_of(again)["code"]) == (409, "conflict")


@pytest.mark.parametrize("path", ["/v1/jobs/no", "/v1/jobs/no/metrics", "/v1/jobs/no/events", "/v1/jobs/%00%ff%F0"])
def test_an_unknown_job_is_not_found(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


def test_metrics_since(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a")
    facade.points = [{**facade.points[0], "time": 10.0}, {**facade.points[0], "time": 20.0, "auc": None}]
    assert [point["time"] for point in http.get("/v1/jobs/a/metrics").json()] == [10.0, 20.0]
    assert http.get("/v1/jobs/a/metrics?since=10").json() == [facade.points[1]]


@pytest.mark.parametrize("since", ["nan", "inf", "-1", "soon", ""])
def test_since_must_be_a_time(http: httpx.Client, facade: FakeFacade, since: str) -> None:
    facade.add_job("a")
    response = http.get(f"/v1/jobs/a/metrics?since={since}")
    assert (response.status_code, error_of(response)["field"]) == (422, "since")


def test_numbers_that_json_does_not_have_are_null(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a")["result"] = {"valid": {"auc": float("nan")}, "note": "half \ud800 a pair"}
    facade.points = [{**facade.points[0], "loss": float("inf")}]
    assert http.get("/v1/jobs/a/metrics").json()[0]["loss"] is None
    assert http.get("/v1/jobs/a").json()["result"] == {"valid": {"auc": None}, "note": "half \ufffd a pair"}


def test_the_cluster_is_answered_as_the_coordinator_tells_it(http: httpx.Client) -> None:
    assert http.get("/v1/nodes").json() == [Node.example]
    assert http.get("/v1/portraits").json() == [Portrait.example]
    assert http.get("/v1/portraits/w0").json() == PortraitHistory.example
    assert http.get("/v1/groups").json() == Groups.example
    assert http.get("/v1/window").json() == Window.example
    assert http.get("/v1/routing").json() == Routing.example
    assert http.get("/v1/embedding-tier/stats").json() == TierStats.example
    assert http.get("/v1/config-schema").json() == config_json_schema()


def test_fields_that_the_schemas_do_not_know_are_kept(http: httpx.Client, facade: FakeFacade) -> None:
    facade.node_list[0]["num_cores"] = 8
    assert http.get("/v1/nodes").json()[0]["num_cores"] == 8


def test_without_a_running_job_there_is_no_window(http: httpx.Client, facade: FakeFacade) -> None:
    facade.window_now = None
    assert http.get("/v1/window").status_code == 409


def test_health_tells_where_nodes_register(http: httpx.Client, facade: FakeFacade) -> None:
    facade.ready = (False, "1 of 2 servers registered")
    assert http.get("/healthz").json() == {"status": "ok", "control": "tcp://127.0.0.1:41234"}


def test_readiness_tells_why_not(http: httpx.Client, facade: FakeFacade) -> None:
    assert http.get("/readyz").json() == {"status": "ready", "reason": "1 of 1 workers registered"}
    facade.ready = (False, "1 of 2 servers registered")
    response = http.get("/readyz")
    assert response.status_code == 503
    assert error_of(response) == {"code": "not_ready", "message": "1 of 2 servers registered"}


def test_unknown_paths_and_methods_have_the_one_form(http: httpx.Client) -> None:
    for path in ("/docs/", "/v1", "/v1/jobs/", "/v1/jobs/a/b", "/redoc"):
        response = http.get(path)
        assert (response.status_code, error_of(response)["code"]) == (404, "not_found")
    response = http.put("/v1/routing", json={"moves": []})
    assert (response.status_code, error_of(response)["code"]) == (405, "method_not_allowed")
    assert response.headers["Allow"] == "GET"


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.code)
def test_every_kind_of_error_keeps_its_status_code_and_facts(
    http: httpx.Client, facade: FakeFacade, kind: type[GeartrainError]
) -> None:
    facade.failure = kind("what happened", role="s1", expected=3)
    response = http.get("/v1/nodes")
    assert response.status_code == kind.http_status
    assert error_of(response) == {"code": kind.code, "message": "what happened", "role": "s1", "expected": 3}
    back = request_errors.error_from_dict(response.json()["error"])
    assert (type(back), back.facts) == (kind, {"role": "s1", "expected": 3})


def test_facts_that_json_does_not_have_do_not_hide_the_error(http: httpx.Client, facade: FakeFacade) -> None:
    facade.failure = ConfigError("lr", field="lr", value=float("nan"), got={"\udfff": [float("-inf")]})
    response = http.get("/v1/nodes")
    assert response.status_code == 422
    assert error_of(response)["value"] is None
    assert error_of(response)["got"] == {"\ufffd": [None]}


@pytest.mark.parametrize("path", READS)
def test_an_unexpected_error_is_logged_and_not_told(
    http: httpx.Client, facade: FakeFacade, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    facade.failure = ZeroDivisionError("the secret of /home/me")
    with caplog.at_level(logging.ERROR, logger="geartrain.api"):
        response = http.get(path)
    assert response.status_code == 500
    assert error_of(response)["code"] == "internal"
    assert "secret" not in response.text
    assert "the secret of /home/me" in caplog.text
    assert f"GET {path} failed" in caplog.text


@pytest.mark.parametrize("path", READS)
def test_a_dead_role_is_told_on_every_call(http: httpx.Client, facade: FakeFacade, path: str) -> None:
    facade.failure = RoleDiedError("server s1 died", role="s1")
    response = http.get(path)
    assert (response.status_code, error_of(response)["role"]) == (503, "s1")


def test_errors_of_our_own_side_are_logged(
    http: httpx.Client, facade: FakeFacade, caplog: pytest.LogCaptureFixture
) -> None:
    facade.failure = KernelError("rows must be float32", argument="rows")
    with caplog.at_level(logging.ERROR, logger="geartrain.api"):
        assert http.get("/v1/nodes").status_code == 500
    assert "kernel_argument" in caplog.text


def test_an_answer_of_the_wrong_shape_is_our_error_and_not_sent(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a")["state"] = "daydreaming"
    response = http.get("/v1/jobs/a")
    assert (response.status_code, error_of(response)["code"]) == (500, "internal")
    assert "daydreaming" not in response.text
