"""The aggregation window of the running job."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import Cluster
from api.openapi import answer, refusals
from api.schemas import Window

router = APIRouter(tags=["cluster"])


@router.get("/v1/window", response_model=Window, responses={**answer(Window.example), **refusals(409)})
def show_window(facade: Cluster) -> Any:
    """How gradients of several groups are merged now: mode, lengths, queue, staleness. Without a running job: 409."""
    return facade.window()
