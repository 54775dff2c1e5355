"""The aggregation window of the running job."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from api.body import body_as
from api.dependencies import Cluster
from api.openapi import answer, refusals, request_body
from api.schemas import Window, WindowRequest

router = APIRouter(tags=["cluster"])


@router.get("/v1/window", response_model=Window, responses={**answer(Window.example), **refusals(409)})
def show_window(facade: Cluster) -> Any:
    """How gradients of several groups are merged now: mode, lengths, queue, staleness. Without a running job: 409."""
    return facade.window()


@router.put(
    "/v1/window",
    response_model=Window,
    responses={
        **answer({**Window.example, **WindowRequest.example, "effective_window_ms": 25.0}),
        **refusals(400, 409, 413, 415, 422),
    },
    openapi_extra=request_body(WindowRequest, WindowRequest.example),
)
def set_window(facade: Cluster, wanted: Annotated[WindowRequest, Depends(body_as(WindowRequest))]) -> Any:
    """Change the mode or the length of the window of the running job, from its next decision on. With another
    mode the job's groups become those of a job that begins with it (`/v1/groups`). The answer is the window as it is
    then. Without a job that trains: 409."""
    return facade.set_window(wanted.model_dump(exclude_none=True))
