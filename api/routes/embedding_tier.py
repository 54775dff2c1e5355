"""The embedding tier: what the tables hold and what is asked of them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import Cluster
from api.openapi import answer, refusals
from api.schemas import TierStats

router = APIRouter(tags=["cluster"])


@router.get(
    "/v1/embedding-tier/stats", response_model=TierStats, responses={**answer(TierStats.example), **refusals(409)}
)
def show_tier_stats(facade: Cluster) -> Any:
    """Rows, memory and traffic per server and table, per table, and in total."""
    return facade.tier_stats()
