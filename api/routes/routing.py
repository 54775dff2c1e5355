"""The route: which server owns how many shards."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import Cluster
from api.openapi import answer, refusals
from api.schemas import Routing

router = APIRouter(tags=["cluster"])


@router.get("/v1/routing", response_model=Routing, responses={**answer(Routing.example), **refusals()})
def show_routing(facade: Cluster) -> Any:
    """The number of the route, shards per server, and moves under way."""
    return facade.routing()
