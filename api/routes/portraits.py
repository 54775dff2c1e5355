"""Portraits: what was measured of each worker, and the speed that a person says it has."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from api.body import body_as
from api.dependencies import Cluster
from api.openapi import answer, refusals, request_body
from api.schemas import Portrait, PortraitHistory, PortraitRequest

router = APIRouter(tags=["cluster"])

_SET_EXAMPLE = {
    **Portrait.example,
    "source": "set",
    "samples_per_s": 3000.0,
    "reason": "set to 3000 samples/s by a person",
}


@router.get("/v1/portraits", response_model=list[Portrait], responses={**answer([Portrait.example]), **refusals()})
def list_portraits(facade: Cluster) -> Any:
    """What was measured of each worker, when, and from how many probes. Empty before the first job."""
    return facade.portraits()


@router.get(
    "/v1/portraits/{worker}",
    response_model=PortraitHistory,
    responses={**answer(PortraitHistory.example), **refusals(404, 422)},
)
def show_portrait(facade: Cluster, worker: str) -> Any:
    """The portrait of one worker, and those that it replaced."""
    return facade.portrait(worker)


@router.put(
    "/v1/portraits/{worker}",
    response_model=Portrait,
    responses={**answer(_SET_EXAMPLE), **refusals(400, 404, 413, 415, 422)},
    openapi_extra=request_body(PortraitRequest, PortraitRequest.example),
)
def put_portrait(
    facade: Cluster, worker: str, wanted: Annotated[PortraitRequest, Depends(body_as(PortraitRequest))]
) -> Any:
    """Set the speed that a worker is taken to have, from the next step or, without a running job, in the next job;
    measurement takes over from there. The answer is the portrait as it is then."""
    return facade.put_portrait(worker, wanted.samples_per_s)
