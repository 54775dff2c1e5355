"""Which server owns a key: key -> shard -> server. A key's shard never changes, a shard's server is the route's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from geartrain.errors import ConfigError
from geartrain.types import NUM_SHARDS, Keys
from geartrain.wire.messages import Route
from kernels.hashing import shard_of

FIRST_ROUTE_EPOCH = 1


def initial_route(servers: Sequence[str], addresses: Sequence[str]) -> Route:
    """The first route: each server owns one range of shards, sizes differing by one at most.

    Raises `ConfigError` without servers, or with more than there are shards.
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


def owned_by(route: Route, server: int, keys: Keys) -> NDArray[np.bool_]:
    """Which of `keys` uint64[N] the server with this number owns, bool[N]."""
    mine: NDArray[np.bool_] = np.asarray(route.owners) == server
    return mine[shard_of(keys)]
