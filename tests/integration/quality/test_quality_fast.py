"""The real data sets, as far as they can be trained in seconds, with floors that a broken model does not reach."""

from __future__ import annotations

from pathlib import Path

from quality_runs import train


def test_adult_in_one_pass(tmp_path: Path) -> None:
    """Logistic regression on the raw columns reaches .904."""
    result = train("adult_wide_deep", tmp_path)
    assert result["test"]["auc"] >= 0.905
    assert result["test"]["num_samples"] == 16281


def test_frappe_in_three_passes(tmp_path: Path) -> None:
    """Logistic regression ends at .9375, however long it trains."""
    result = train("frappe_deepfm", tmp_path, "--set", "training.passes=3")
    assert result["test"]["auc"] >= 0.955
    assert result["samples"] == 3 * 202_063


def test_criteo_sample(tmp_path: Path) -> None:
    """391 test rows: the standard error of their AUC is .017."""
    assert train("criteo_8k_deepfm", tmp_path)["test"]["auc"] > 0.68
