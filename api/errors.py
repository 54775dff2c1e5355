"""The one place where errors become HTTP answers: `{"error": {"code", "message", "field"?, ...facts}}`."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.rendering import JsonAnswer
from api.request_errors import MethodNotAllowedError
from geartrain.errors import AuthError, ConfigError, GeartrainError, NotFoundError

logger = logging.getLogger("geartrain.api")

_PARAMETER_SOURCES = ("body", "query", "path", "header", "cookie")


def error_answer(error: GeartrainError, headers: dict[str, str] | None = None) -> JsonAnswer:
    """The answer for an error with facts; its class holds the status."""
    headers = dict(headers or {})
    if isinstance(error, AuthError):
        headers["WWW-Authenticate"] = "Bearer"
    return JsonAnswer({"error": error.to_dict()}, status_code=error.http_status, headers=headers)


def validation_error(errors: list[Any]) -> ConfigError:
    """The first of pydantic's `errors` as a `ConfigError`: the field's dotted path, its value, what is expected."""
    first = errors[0]
    path = [str(part) for part in first["loc"]]
    if len(path) > 1 and path[0] in _PARAMETER_SOURCES:
        path = path[1:]
    field, message = ".".join(path), str(first["msg"])
    # Types of the config say in a word of their own what they expect; of others the message is all there is.
    expected = str(first["ctx"]["expected"]) if first["type"] == "expected" else message
    return ConfigError(f"{field}: {message}", field=field, value=_short(first.get("input")), expected=expected)


def _short(value: Any) -> Any:
    """Values are repeated to the caller as they came if they are small and plain, else as a cut text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def install_error_handlers(app: FastAPI) -> None:
    """Make `app` answer in the form of this file whatever goes wrong."""
    app.add_exception_handler(GeartrainError, _on_geartrain_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


def _on_geartrain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GeartrainError)
    if error.http_status == GeartrainError.http_status:
        logger.error("%s %s failed: %s", request.method, request.url.path, error.to_dict(), exc_info=error)
    return error_answer(error)


def _on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_answer(validation_error(list(error.errors())))


def _on_http_exception(request: Request, error: Exception) -> Response:
    """What the framework itself raises: an unknown path or a method that the path does not have."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    if error.status_code == NotFoundError.http_status:
        return error_answer(NotFoundError(f"there is no {path}; /docs lists the calls", path=path), headers)
    if error.status_code == MethodNotAllowedError.http_status:
        allowed = headers.get("Allow", headers.get("allow", ""))
        message = f"{request.method} is not a method of {path}; it has {allowed}"
        return error_answer(MethodNotAllowedError(message, method=request.method, allowed=allowed), headers)
    answer = error_answer(GeartrainError(str(error.detail)), headers)
    answer.status_code = error.status_code
    return answer


class UnexpectedErrorBoundary:
    """ASGI middleware: an exception that nobody expected is logged whole and answered without its contents."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def noting_start(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noting_start)
        except ClientDisconnect:
            logger.info("%s %s: the client went away", scope["method"], scope["path"])
        except Exception:
            logger.exception("%s %s failed unexpectedly", scope["method"], scope["path"])
            if started:
                # The status line is out: only a broken connection can still tell the client.
                raise
            message = "an unexpected error; the coordinator's log has the details"
            await error_answer(GeartrainError(message))(scope, receive, send)
