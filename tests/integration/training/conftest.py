from __future__ import annotations

from collections.abc import Iterator

import pytest
from training_cluster import TrainingCluster


@pytest.fixture(scope="session", autouse=True)
def one_thread_each() -> Iterator[None]:
    """Models of a few hundred weights: a second thread per process only spins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="session")
def cluster(one_thread_each: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingCluster]:
    """Two servers and three workers, for all tests that need no other shape."""
    with TrainingCluster(tmp_path_factory.mktemp("cluster"), 2, 3) as cluster:
        yield cluster
