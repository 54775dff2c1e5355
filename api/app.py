"""The REST application: routes over the coordinator's facade, with authentication and error answers around them."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from api.auth import BearerAuth
from api.errors import UnexpectedErrorBoundary, install_error_handlers
from api.events import StreamControl
from api.rendering import JsonAnswer
from api.routes import embedding_tier, groups, health, jobs, nodes, pages, portraits, routing, window
from coordinator.facade import ClusterFacade

_DESCRIPTION = """Submit training jobs and watch the cluster that runs them.

Errors are `{"error": {"code", "message", "field"?}}`, whatever goes wrong; codes never change.
"""


def create_app(facade: ClusterFacade, *, api_token: str | None, streams: StreamControl | None = None) -> FastAPI:
    """The application that serves `facade`.

    With `api_token` every call but `/healthz` needs it as a bearer token; `None` lets everybody in, and an empty or
    unsendable one is a `ConfigError`. `streams` sets how event streams look for news.
    """
    app = FastAPI(
        title="Geartrain",
        version="1",
        description=_DESCRIPTION,
        default_response_class=JsonAnswer,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.facade = facade
    app.state.streams = streams or StreamControl()
    install_error_handlers(app)
    # This only tells readers of the OpenAPI document; what refuses callers is the middleware below.
    documented = [] if api_token is None else [Depends(HTTPBearer(auto_error=False))]
    app.include_router(health.open_router)
    app.include_router(pages.router)
    app.mount(pages.ASSETS_PATH, pages.assets())
    for part in (jobs, nodes, portraits, groups, window, routing, embedding_tier, health):
        app.include_router(part.router, dependencies=documented)
    if api_token is not None:
        app.add_middleware(BearerAuth, token=api_token)
    app.add_middleware(UnexpectedErrorBoundary)
    return app


def close_streams(app: FastAPI) -> None:
    """End all event streams of an application made by `create_app` at their next look."""
    control: StreamControl = app.state.streams
    control.closing.set()


def _operation_id(route: APIRoute) -> str:
    return route.name
