"""Pages for people: what is here, and the OpenAPI document to read and to try. Nothing of them comes from elsewhere, as
a cluster's machines often reach nothing else.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

ASSETS_PATH = "/docs-assets"

_LINKS = {
    "/docs": "all calls, to read and to try",
    "/v1/jobs": "jobs",
    "/v1/nodes": "servers and workers",
    "/v1/portraits": "what was measured of each worker",
    "/v1/groups": "who trains with whom, and why",
    "/v1/window": "how gradients are merged (while a job trains)",
    "/v1/routing": "shards per server",
    "/v1/embedding-tier/stats": "rows, memory and traffic of the tables",
    "/v1/config-schema": "the JSON schema of a job's config",
    "/healthz": "liveness",
    "/readyz": "readiness",
    "/metrics": "figures for Prometheus",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
def index() -> HTMLResponse:
    """Links to everything that can be looked at without a parameter."""
    links = "\n".join(f'<li><a href="{path}">{path}</a>: {what}</li>' for path, what in _LINKS.items())
    return HTMLResponse(
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"><title>Geartrain</title></head>\n'
        f"<body><h1>Geartrain</h1>\n<ul>\n{links}\n</ul></body></html>\n"
    )


@router.get("/docs")
def docs() -> HTMLResponse:
    """The OpenAPI document as Swagger UI shows it."""
    return get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Geartrain",
        swagger_js_url=f"{ASSETS_PATH}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS_PATH}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS_PATH}/favicon.png",
        swagger_ui_parameters={"validatorUrl": None},  # else the page may ask a public service whether it is valid
    )


def assets() -> StaticFiles:
    """Swagger UI's own files, from the package that carries them."""
    return StaticFiles(packages=[("fastapi_offline", "static")])
