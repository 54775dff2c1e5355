"""Commands in a folder with data for a job that takes long; whatever happens, nothing is left running."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "integration" / "cluster"))
sys.path.append(str(Path(__file__).parents[1] / "unit" / "tier"))

from cluster_support import Commands, commands_in


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with commands_in(tmp_path) as running:
        yield running
