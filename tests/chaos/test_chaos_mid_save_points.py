"""Killed at any point of a save: the previous checkpoint is whole, and nothing half-written looks like one."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from dying_saver import count_steps, killed_at, trained
from snapshot_servers import cluster, contents

from coordinator.checkpoints import TEMPORARY_PREFIX, load_manifest
from coordinator.cut_folders import CutFolders

NUM_SAVES = 5
NUM_POINTS = 10


@pytest.mark.parametrize("full_every", [1, 3])
def test_killed_at_random_points(tmp_path: Path, full_every: int) -> None:
    steps = count_steps(tmp_path, NUM_SAVES, full_every)
    points = random.Random(full_every).sample(range(steps[0], steps[-1]), NUM_POINTS)
    wanted = {version: contents(trained(version)) for version in range(1, NUM_SAVES + 1)}
    for point in points:
        root = tmp_path / str(point)
        assert killed_at(root, point, NUM_SAVES, full_every) == -signal.SIGKILL
        whole = sorted(path for path in root.iterdir() if not path.name.startswith(TEMPORARY_PREFIX))
        versions = [load_manifest(path).version for path in whole]
        published = sum(point >= done for done in steps)
        assert versions[-1] in (published, published + 1), "the newest, or the one whose name it just got"
        restored = cluster(3)
        for server in restored:
            server.load(whole[-1])
        assert contents(restored) == wanted[versions[-1]]
        # What the death left behind is gone when a run begins there again.
        CutFolders().clear(root)
        assert sorted(root.iterdir()) == whole
