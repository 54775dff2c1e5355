"""Liveness, readiness, and metrics for Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from api.dependencies import Cluster
from api.exposition import CONTENT_TYPE, exposition
from api.openapi import answer, refusals
from api.request_errors import NotReadyError
from api.schemas import Health, Readiness

open_router = APIRouter(tags=["health"])
"""What answers without a token."""

router = APIRouter(tags=["health"])

_METRICS_EXAMPLE = """\
# HELP geartrain_jobs Jobs by state.
# TYPE geartrain_jobs gauge
geartrain_jobs{state="training"} 1.0
"""


@open_router.get("/healthz", response_model=Health, responses=answer(Health.example))
def healthz(facade: Cluster) -> Any:
    """Whether the process lives, and the address at which nodes register. Needs no token."""
    return {"status": "ok", "control": facade.control_address()}


@router.get("/readyz", response_model=Readiness, responses={**answer(Readiness.example), **refusals(503)})
def readyz(facade: Cluster) -> Any:
    """Whether jobs can be run now; 503 with the reason while they cannot."""
    is_ready, reason = facade.readiness()
    if not is_ready:
        raise NotReadyError(reason)
    return {"status": "ready", "reason": reason}


@router.get(
    "/metrics",
    response_class=Response,
    responses={**answer(_METRICS_EXAMPLE, media="text/plain"), **refusals()},
)
def metrics(facade: Cluster) -> Response:
    """Gauges in the text format of Prometheus."""
    return Response(exposition(facade), media_type=CONTENT_TYPE)
