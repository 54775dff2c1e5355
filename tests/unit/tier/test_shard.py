"""Every key has one owner, and servers share the shards evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.routing import initial_route
from embedding_tier.shard import owned_by
from geartrain.errors import ConfigError
from kernels.hashing import shard_of


@given(st.integers(1, 1024), st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_every_key_has_exactly_one_owner(num_servers: int, keys: list[int]) -> None:
    names = [f"s{number}" for number in range(num_servers)]
    route = initial_route(names, names)
    sizes = np.bincount(route.owners, minlength=num_servers)
    assert len(route.owners) == 1024 and sizes.max() - sizes.min() <= 1
    array = np.array([0, 2**64 - 1, *keys], dtype=np.uint64)
    owners = np.asarray(route.owners)[shard_of(array)]
    for server in {0, num_servers - 1, *owners.tolist()}:
        np.testing.assert_array_equal(owned_by(route, server, array), owners == server)


def test_no_servers_or_more_than_shards_are_refused() -> None:
    for count in (0, 1025):
        with pytest.raises(ConfigError):
            initial_route(["s"] * count, ["a"] * count)
