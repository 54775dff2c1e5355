"""The OpenAPI document: every call is there, and every answer has one example, which is one of its own type."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter

import api.schemas as schemas
from api.app import create_app
from api.testing import FakeFacade
from coordinator.jobs import ACTIVE_STATES
from geartrain.job_states import ENDED_STATES

DOCUMENT = create_app(FakeFacade(), api_token="token").openapi()

CALLS = {
    "POST /v1/jobs",
    "GET /v1/jobs",
    "GET /v1/jobs/{job}",
    "DELETE /v1/jobs/{job}",
    "GET /v1/jobs/{job}/metrics",
    "GET /v1/jobs/{job}/events",
    "GET /v1/config-schema",
    "GET /v1/nodes",
    "GET /v1/portraits",
    "GET /v1/portraits/{worker}",
    "PUT /v1/portraits/{worker}",
    "GET /v1/groups",
    "GET /v1/window",
    "PUT /v1/window",
    "GET /v1/routing",
    "GET /v1/embedding-tier/stats",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
}

ANSWERS = [
    pytest.param(media, kind, id=f"{method.upper()} {path} {status}")
    for path, methods in DOCUMENT["paths"].items()
    for method, call in methods.items()
    for status, response in call["responses"].items()
    for kind, media in response.get("content", {}).items()
]

MODELS = [
    model
    for model in vars(schemas).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and "example" in vars(model)
]


def described_type(schema: dict[str, Any]) -> Any:
    """The type of `api.schemas` that a schema of the document stands for."""
    if "$ref" in schema:
        return getattr(schemas, schema["$ref"].rpartition("/")[2])
    if schema.get("type") == "array":
        return list[described_type(schema["items"])]
    assert schema.get("type") == "object"
    return dict[str, Any]


def test_every_call_is_described() -> None:
    listed = {f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert listed == CALLS
    calls = [call for methods in DOCUMENT["paths"].values() for call in methods.values()]
    assert all(call["description"] for call in calls)
    assert len({call["operationId"] for call in calls}) == len(CALLS)


@pytest.mark.parametrize(("media", "kind"), ANSWERS)
def test_every_answer_has_an_example_of_its_own_type(media: dict[str, Any], kind: str) -> None:
    if kind == "application/json":
        TypeAdapter(described_type(media["schema"])).validate_python(media["example"], strict=True)
    else:
        assert isinstance(media["example"], str)
        assert media["example"].endswith("\n")


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_an_example_that_shows_all_fields_with_a_value(model: type[Any]) -> None:
    parsed = model.model_validate(model.example, strict=True)
    missing = set(model.model_fields) - parsed.model_fields_set
    assert missing <= {"error", "result"}
    assert not (parsed.model_extra or {}).keys() - {"value", "expected"}


@pytest.mark.parametrize(
    ("method", "path", "model", "required"),
    [
        ("post", "/v1/jobs", schemas.SubmitRequest, ["config"]),
        ("put", "/v1/portraits/{worker}", schemas.PortraitRequest, ["samples_per_s"]),
        ("put", "/v1/window", schemas.WindowRequest, None),
    ],
)
def test_every_body_is_described(method: str, path: str, model: type[BaseModel], required: list[str] | None) -> None:
    media = DOCUMENT["paths"][path][method]["requestBody"]["content"]["application/json"]
    assert media["schema"].get("required") == required
    assert media["schema"]["additionalProperties"] is False
    model.model_validate(media["example"], strict=True)


def test_only_calls_that_change_something_have_a_body() -> None:
    with_body = {
        (method, path)
        for path, methods in DOCUMENT["paths"].items()
        for method, call in methods.items()
        if "requestBody" in call
    }
    assert with_body == {("post", "/v1/jobs"), ("put", "/v1/portraits/{worker}"), ("put", "/v1/window")}


def test_the_frameworks_own_error_form_is_nowhere() -> None:
    assert "HTTPValidationError" not in DOCUMENT["components"]["schemas"]


def test_the_states_are_those_of_the_job_machine() -> None:
    assert set(get_args(schemas.JobState)) == {"queued", *ACTIVE_STATES, *ENDED_STATES}
