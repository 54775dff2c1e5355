"""Whatever is sent, the answer is in the one form and never an internal error."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.app import create_app
from api.testing import FakeFacade, InProcessTransport
from geartrain.errors import ConfigError

quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class EchoingFacade(FakeFacade):
    """Refuses every config and repeats it, as validation does."""

    def submit(self, config: dict[str, Any], task: dict[str, Any] | None = None) -> dict[str, Any]:
        raise ConfigError("refused", field=".".join(map(str, config)), value=config, expected="another")


def call(method: str, path: str, **request: Any) -> httpx.Response:
    facade = EchoingFacade()
    facade.add_job("a", "succeeded")
    app = create_app(facade, api_token=None)
    with httpx.Client(transport=InProcessTransport(app), base_url="http://coordinator") as client:
        response = client.request(method, path, **request)
    if response.status_code >= 400:
        error = json.loads(response.content.decode(), parse_constant=lambda name: 1 / 0)["error"]
        assert error["code"] != "internal"
        assert isinstance(error["message"], str)
    return response


@quick
@given(st.binary(max_size=200))
def test_bytes(body: bytes) -> None:
    response = call("POST", "/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)


@quick
@given(plain_values)
def test_json_of_any_shape(value: Any) -> None:
    response = call("POST", "/v1/jobs", content=json.dumps(value), headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)


@quick
@given(st.dictionaries(st.text(), plain_values, max_size=5))
def test_configs_of_any_content_come_back_in_the_refusal(config: dict[str, Any]) -> None:
    body = json.dumps({"config": config})
    response = call("POST", "/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    if response.status_code == 422:
        assert response.json()["error"]["value"] == config


@quick
@given(st.text(max_size=30), st.text(max_size=30))
def test_parameters_of_any_text(job: str, since: str) -> None:
    params = {"since": since.encode(errors="replace")}
    path = "/v1/jobs/" + quote(job, safe="/", errors="replace")
    assert call("GET", path + "/metrics", params=params).status_code < 500
    assert call("DELETE", path).status_code < 500


@quick
@given(st.binary(max_size=30).filter(lambda text: not set(text) & set(b"\r\n\0")))
def test_headers_of_any_bytes(text: bytes) -> None:
    headers = [(b"Last-Event-ID", text), (b"Content-Type", text), (b"Authorization", text)]
    assert call("GET", "/v1/jobs/a/events", headers=headers).status_code < 500
    assert call("POST", "/v1/jobs", content=b"{}", headers=headers).status_code < 500
