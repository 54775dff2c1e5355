"""Groups: which workers train in lock-step, how their batch is shared, and why."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import Cluster
from api.openapi import answer, refusals
from api.schemas import Groups

router = APIRouter(tags=["cluster"])


@router.get("/v1/groups", response_model=Groups, responses={**answer(Groups.example), **refusals()})
def show_groups(facade: Cluster) -> Any:
    """The groups of the running job with their shares, and the reason for this partition. Without a job that trains
    there are none, which is no error."""
    return facade.groups()
