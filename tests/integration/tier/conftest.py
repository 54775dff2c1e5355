from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tier_cluster import TierCluster

StartTier = Callable[..., TierCluster]


@pytest.fixture
def start_tier() -> Iterator[StartTier]:
    """Starts clusters; all of them end with the test. Socket paths are short: their length is limited."""
    with ExitStack() as stack:

        def start(**fields: Any) -> TierCluster:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="gt-")))
            return stack.enter_context(closing(TierCluster(directory, **fields)))

        yield start
