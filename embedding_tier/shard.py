"""Which server owns a key: key -> shard -> server. A key's shard never changes, a shard's server is the route's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Keys
from geartrain.wire.messages import Route
from kernels.hashing import shard_of


def owned_by(route: Route, server: int, keys: Keys) -> NDArray[np.bool_]:
    """Which of `keys` uint64[N] the server with this number owns, bool[N]."""
    mine: NDArray[np.bool_] = np.asarray(route.owners) == server
    return mine[shard_of(keys)]
