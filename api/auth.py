"""Bearer tokens: with a token set, every call but `/healthz` needs `Authorization: Bearer <token>`."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import error_answer
from api.tokens import checked_token
from geartrain.errors import AuthError

OPEN_PATHS = frozenset({"/healthz"})
"""Paths that answer without a token: a supervisor's liveness check holds no secrets."""


class BearerAuth:
    """ASGI middleware in front of every path, known or not, so that an unauthorized caller learns nothing."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = checked_token(token).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_authorized(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        message = "this call needs the header 'Authorization: Bearer <GEARTRAIN_API_TOKEN>'"
        await error_answer(AuthError(message, path=scope["path"]))(scope, receive, send)

    def _is_authorized(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Constant time: how long the comparison takes must not tell how much of a guess is right.
        return hmac.compare_digest(given.strip().encode(), self._token) and scheme.lower() == "bearer"
