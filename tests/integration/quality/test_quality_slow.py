"""The AUC that each example must reach on its whole data set; minutes per run."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest
from quality_runs import train

pytestmark = pytest.mark.slow

FIVE_SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def frappe_sync(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Test AUC of five seeds, one group of two workers, sync."""
    return frappe(tmp_path_factory.mktemp("sync"), FIVE_SEEDS, "--sync-mode", "sync")


def frappe(folder: Path, seeds: tuple[int, ...], *options: str) -> list[float]:
    runs = [train("frappe_deepfm", folder / str(seed), "--set", f"training.seed={seed}", *options) for seed in seeds]
    return [run["test"]["auc"] for run in runs]


def test_frappe_reaches_the_published_auc(frappe_sync: list[float]) -> None:
    assert mean(frappe_sync[:3]) >= 0.9832, frappe_sync


def test_frappe_with_one_group_is_the_same_in_sync_and_hybrid(frappe_sync: list[float], tmp_path: Path) -> None:
    hybrid = frappe(tmp_path, FIVE_SEEDS[:3], "--sync-mode", "hybrid")
    for synchronous, other in zip(frappe_sync, hybrid, strict=False):
        assert abs(synchronous - other) <= 1e-4, (frappe_sync, hybrid)


def test_frappe_with_two_groups_loses_nothing(frappe_sync: list[float], tmp_path: Path) -> None:
    hybrid = frappe(tmp_path, FIVE_SEEDS, "--sync-mode", "hybrid", "--sync-group-size", "1")
    assert abs(mean(hybrid) - mean(frappe_sync)) <= 0.001, (frappe_sync, hybrid)


def test_ml1m_reaches_its_auc(tmp_path: Path) -> None:
    assert train("ml1m_deepfm", tmp_path)["test"]["auc"] >= 0.772
