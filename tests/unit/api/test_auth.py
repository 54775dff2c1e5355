"""With a token set, nothing but the liveness check answers without it."""

from __future__ import annotations

import httpx
import pytest

from api.app import create_app
from api.testing import FakeFacade, InProcessTransport
from geartrain.errors import ConfigError

TOKEN = "s3cret-token"


def call(
    facade: FakeFacade, method: str, path: str, authorization: bytes | None = None, token: str | None = TOKEN
) -> httpx.Response:
    headers = [] if authorization is None else [(b"Authorization", authorization)]
    app = create_app(facade, api_token=token)
    with httpx.Client(transport=InProcessTransport(app), base_url="http://coordinator") as client:
        return client.request(method, path, headers=headers)


def documented_calls() -> list[tuple[str, str]]:
    document = create_app(FakeFacade(), api_token=None).openapi()
    return [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]


PAGES = ["/", "/docs", "/docs-assets/swagger-ui.css", "/openapi.json", "/no/such/path"]
CALLS = [*documented_calls(), *(("GET", page) for page in PAGES)]
GUARDED = [(method, path) for method, path in CALLS if path != "/healthz"]


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_every_call_needs_the_token(facade: FakeFacade, method: str, path: str) -> None:
    facade.add_job("a")
    response = call(facade, method, path.replace("{job}", "a"))
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "unauthorized"
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert TOKEN not in response.text
    assert facade.job_table["a"]["state"] == "training"


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_every_call_is_let_in_with_the_token(facade: FakeFacade, method: str, path: str) -> None:
    facade.add_job("a", "succeeded")
    response = call(facade, method, path.replace("{job}", "a"), f"Bearer {TOKEN}".encode())
    assert response.status_code not in (401, 500)


def test_the_liveness_check_needs_no_token(facade: FakeFacade) -> None:
    assert call(facade, "GET", "/healthz").status_code == 200
    assert call(facade, "GET", "/healthz", b"Bearer wrong").status_code == 200
    assert call(facade, "GET", "/healthz/").status_code == 401


@pytest.mark.parametrize(
    "authorization",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer s3cret-toke",
        b"Bearer s3cret-token2",
        b"Bearer S3CRET-TOKEN",
        b"Basic s3cret-token",
        b"s3cret-token",
        b"Bearer \xff\xfe\xc3\xa9",
    ],
)
def test_wrong_tokens_are_refused(facade: FakeFacade, authorization: bytes) -> None:
    assert call(facade, "GET", "/v1/jobs", authorization).status_code == 401


def test_the_scheme_is_read_in_any_case(facade: FakeFacade) -> None:
    assert call(facade, "GET", "/v1/jobs", b"bearer s3cret-token").status_code == 200


def test_without_a_token_everybody_is_let_in(facade: FakeFacade) -> None:
    assert call(facade, "GET", "/v1/jobs", token=None).status_code == 200


@pytest.mark.parametrize("token", ["", " ", "a b", "schlüssel", "line\n"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_repeated(facade: FakeFacade, token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call(facade, "GET", "/healthz", token=token)
    assert caught.value.facts["field"] == "GEARTRAIN_API_TOKEN"
    assert "schlüssel" not in str(caught.value.to_dict())


def test_the_document_says_that_a_token_is_needed() -> None:
    def guarded(token: str | None) -> set[str]:
        paths = create_app(FakeFacade(), api_token=token).openapi()["paths"]
        return {path for path, methods in paths.items() for call in methods.values() if "security" in call}

    assert guarded(None) == set()
    assert guarded(TOKEN) == {path for _, path in documented_calls()} - {"/healthz"}
