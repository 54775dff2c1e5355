"""Which server owns which shard. Pure. The first placement stays for the whole job: equal runs of shards, in order."""

from __future__ import annotations

from collections.abc import Sequence

from geartrain.errors import ConfigError
from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import Route

FIRST_ROUTE_EPOCH = 1


def initial_route(servers: Sequence[str], addresses: Sequence[str]) -> Route:
    """The route of a new job: each server owns one run of shards, sizes differing by one at most.

    Raises `ConfigError` without servers, or with more of them than there are shards.
    """
    num_servers = len(servers)
    if not 1 <= num_servers <= NUM_SHARDS:
        raise ConfigError(
            f"{num_servers} embedding servers, from 1 to {NUM_SHARDS} are possible",
            field="server_num",
            value=num_servers,
            expected=f"1 to {NUM_SHARDS}",
        )
    owners = [shard * num_servers // NUM_SHARDS for shard in range(NUM_SHARDS)]
    return Route(FIRST_ROUTE_EPOCH, list(servers), list(addresses), owners)
