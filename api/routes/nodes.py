"""Nodes: which servers and workers there are."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import Cluster
from api.openapi import answer, refusals
from api.schemas import Node

router = APIRouter(tags=["cluster"])

_SERVER_EXAMPLE = {**Node.example, "name": "s0", "role": "server", "address": "tcp://10.0.0.5:40100", "device": ""}


@router.get("/v1/nodes", response_model=list[Node], responses={**answer([_SERVER_EXAMPLE, Node.example]), **refusals()})
def list_nodes(facade: Cluster) -> Any:
    """Every server and worker: role, address, device, last heartbeat, state."""
    return facade.nodes()
