"""Bodies are read strictly: bounded, of one meaning, and only where they are declared as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from api.body import MAX_BODY_BYTES, MAX_DEPTH, parse_json, read_json
from api.request_errors import BodyTooLargeError, MalformedBodyError
from api.testing import FakeFacade

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'config': {}}",
        b'{"config": NaN}',
        b'{"config": {"lr": -Infinity}}',
        b'{"config": {}, "config": {}}',
        b'{"config": {"lr": 1, "lr": 2}}',
        b'{"config": {"name": "\\ud800"}}',
        b'{"config": {"\\udfff": 1}}',
        b'{"config": "\xff"}',
        b"[" * 100_000,
        b'{"config":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
        b'{"config": ' + b"9" * 5000 + b"}",
        b"{} {}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_what_is_not_plain_json_is_refused(http: httpx.Client, facade: FakeFacade, body: bytes) -> None:
    response = http.post("/v1/jobs", content=body, headers=JSON)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "body_malformed"
    assert facade.configs == []


def test_what_json_can_say_is_read_unchanged() -> None:
    value = {"a": [1, -2.5, 1e300, True, None, "", "ü\u2028\U0001f600", 2**70], "b": {}}
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


def test_depth_is_counted_in_levels() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(MalformedBodyError, match="64 levels"):
        parse_json(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_a_page_of_another_origin_cannot_submit(
    http: httpx.Client, facade: FakeFacade, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = http.post("/v1/jobs", content=b'{"config": {}}', headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "content_type_unsupported")
    assert facade.configs == []


def test_the_content_type_may_have_parameters(http: httpx.Client) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert http.post("/v1/jobs", content=b'{"config": {}}', headers=headers).status_code == 201


def test_the_limit_is_exact(http: httpx.Client, facade: FakeFacade) -> None:
    frame = len(json.dumps({"config": {"name": ""}}))
    fits = json.dumps({"config": {"name": "x" * (MAX_BODY_BYTES - frame)}})
    assert len(fits) == MAX_BODY_BYTES
    assert http.post("/v1/jobs", content=fits, headers=JSON).status_code == 201
    response = http.post("/v1/jobs", content=fits + " ", headers=JSON)
    assert response.status_code == 413
    assert response.json()["error"]["limit_bytes"] == MAX_BODY_BYTES
    assert len(facade.configs) == 1


def test_a_body_of_undeclared_length_is_counted_while_it_comes() -> None:
    num_parts_read = 0

    async def receive() -> dict[str, Any]:
        nonlocal num_parts_read
        num_parts_read += 1
        return {"type": "http.request", "body": b" " * (MAX_BODY_BYTES // 2), "more_body": True}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(BodyTooLargeError):
        asyncio.run(read_json(Request(scope, receive)))
    assert num_parts_read == 3
