"""Which server owns which shard. Pure. For now the first placement stays: equal numbers of shards, in order."""

from __future__ import annotations

from collections.abc import Sequence

from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import Route


def initial_route(servers: Sequence[str], addresses: Sequence[str]) -> Route:
    """The route of a new job: contiguous runs of shards, as equal as whole shards allow."""
    owners = [shard * len(servers) // NUM_SHARDS for shard in range(NUM_SHARDS)]
    return Route(route_epoch=1, servers=list(servers), addresses=list(addresses), owners=owners)
