"""HTTP calls of the SDK: one place where answers become data, and failures become errors with facts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from api.request_errors import error_from_dict
from api.tokens import checked_token
from geartrain.addresses import API_URL
from geartrain.errors import ConfigError, DeadlineError, GeartrainError, WireError

_STREAM_SILENCE_S = 60.0
"""Four of the server's keep-alive intervals."""


class Connection:
    """Calls to the API at `base_url`, with `token` as bearer token if there is one.

    Raises `ConfigError` if either cannot be used. `transport` replaces the network.
    """

    def __init__(
        self, base_url: str, token: str | None, deadline_s: float, transport: httpx.BaseTransport | None
    ) -> None:
        self._base_url = _checked_url(base_url)
        self._deadline_s = deadline_s
        # Proxies and .netrc of the environment are for the internet: they would divert calls to this machine, or
        # replace the token.
        self._http = httpx.Client(
            base_url=self._base_url,
            headers={} if token is None else {"Authorization": f"Bearer {checked_token(token)}"},
            timeout=deadline_s,
            transport=transport,
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, expect: type, **request: Any) -> Any:
        """The decoded answer, which is of type `expect` (dict or list).

        Raises the error that the coordinator answered with, `DeadlineError` if it cannot be reached, or `WireError`
        if something else answered.
        """
        response = self._send(self._http.build_request(method, path, **request), stream=False)
        value = _decoded(response)
        if not isinstance(value, expect):
            raise _foreign_answer(response, f"a JSON {expect.__name__}")
        return value

    def messages(self, path: str, last_event_id: int) -> Iterator[tuple[str, str]]:
        """(event, data) of a server-sent event stream from where `last_event_id` left off.

        Ends where the stream ends or breaks. A server that says "do not connect again" counts as the event `end`.
        Raises as `call` does if there is no connection in the first place.
        """
        headers = {"Last-Event-ID": str(last_event_id)}
        timeout = httpx.Timeout(self._deadline_s, read=_STREAM_SILENCE_S)
        response = self._send(self._http.build_request("GET", path, headers=headers, timeout=timeout), stream=True)
        try:
            if response.status_code == httpx.codes.NO_CONTENT:
                yield "end", ""
                return
            yield from _split_messages(response.iter_text())
        except httpx.TransportError:
            # What was lost is asked for by the next connection; if there is none, that one says so.
            return
        finally:
            response.close()

    def _send(self, request: httpx.Request, stream: bool) -> httpx.Response:
        """A successful answer; everything else is raised."""
        try:
            response = self._http.send(request, stream=stream)
            if response.is_success:
                return response
            response.read()
            response.close()
        except (httpx.RequestError, UnicodeError) as error:
            # UnicodeError: a host name that no resolver can be asked for.
            what = str(error) or type(error).__name__
            raise DeadlineError(
                f"the coordinator at {self._base_url} does not answer: {what}",
                role="coordinator",
                address=self._base_url,
                deadline_s=self._deadline_s,
            ) from error
        raise _refusal(response)


def _checked_url(base_url: str) -> str:
    expected = f"a URL such as {API_URL}"
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{base_url!r} is not {expected}: {error}", field="coordinator", expected=expected) from error
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise ConfigError(f"{base_url!r} is not {expected}", field="coordinator", value=base_url, expected=expected)
    return base_url.rstrip("/")


def _refusal(response: httpx.Response) -> GeartrainError:
    fields = _decoded(response)
    error = fields.get("error") if isinstance(fields, dict) else None
    if not isinstance(error, dict):
        return _foreign_answer(response, "an error of Geartrain")
    return error_from_dict(error)


def _decoded(response: httpx.Response) -> Any:
    try:
        return json.loads(response.content)
    except ValueError as error:
        raise _foreign_answer(response, "JSON") from error


def _foreign_answer(response: httpx.Response, expected: str) -> WireError:
    got = f"status {response.status_code} with {response.headers.get('content-type', 'no content type')}"
    url = str(response.request.url)
    return WireError(f"{url} is not answered by a Geartrain coordinator: {got}", expected=expected, got=got)


def _split_messages(texts: Iterator[str]) -> Iterator[tuple[str, str]]:
    """(event, data) of each whole message; comments, ids and other fields are skipped."""
    rest = ""
    for text in texts:
        *blocks, rest = (rest + text).split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            if "data" in fields:
                yield fields.get("event", "message"), fields["data"]
