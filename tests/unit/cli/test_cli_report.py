"""The report for people."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from geartrain.report import render_report

RESULT: dict[str, Any] = {
    "job": "frappe-1",
    "state": "succeeded",
    "passes": 3,
    "samples": 600000,
    "version": 1465,
    "train_seconds": 12.3,
    "samples_per_s": 48780.4,
    "best_pass": 2,
    "best_version": 980,
    "best_by": "auc",
    "valid": {"auc": 0.98412, "logloss": 0.15, "num_samples": 57722, "gauc": 0.9},
    "test": {"auc": None, "logloss": 0.2, "num_samples": 1, "auc_reason": "one class only"},
    "workers": [
        {
            "worker": "w0",
            "device": "cpu",
            "group": 0,
            "share": 0.5,
            "samples": 300000,
            "step_ms": {"p50": 41.25, "p99": 60.0},
            "wait_ms": {"p50": 0.0},
            "solo_samples_per_s": None,
        }
    ],
    "checkpoint": "runs/a [b]/pass-2",
}


def shown(result: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    console.print(render_report(result))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [" ".join(line.split()) for line in text.splitlines()]


def test_metrics_speed_and_place() -> None:
    lines = shown(RESULT)
    assert "job frappe-1 succeeded" in lines
    assert "valid AUC 0.98412, logloss 0.15000, GAUC 0.90000 on 57,722 samples" in lines
    assert "test AUC none (one class only), logloss 0.20000 on 1 samples" in lines
    assert "samples 600,000 in 3 passes, 1,465 windows" in lines
    assert "speed 48,780 samples/s (12.3 s of training)" in lines
    assert "best pass 2, version 980 (by auc)" in lines
    assert "checkpoint runs/a [b]/pass-2" in lines


@pytest.mark.parametrize(
    ("changes", "line"),
    [({}, "last pass 2, version 980"), ({"passes": 0, "samples": 0}, "model pass 2, version 980")],
)
def test_a_pass_that_was_compared_with_none_is_not_called_the_best(changes: dict[str, Any], line: str) -> None:
    """Without early stopping the last pass counts; a checkpoint that is evaluated is of some pass."""
    lines = shown({**RESULT, "best_by": None, **changes})
    assert line in lines
    assert not any(one.startswith("best") for one in lines)


def test_rows_and_what_became_of_them() -> None:
    totals = {"num_rows": 1200, "bytes": 9, "num_admitted": 1500, "num_rejected": 7, "num_expired": 300}
    tier = {"tables": {"user": {}, "item": {}}, "totals": {**totals, "num_evicted": 0}}
    assert "rows 1,200 in 2 tables (1,500 born, 7 rejected, 300 expired)" in shown({**RESULT, "embedding_tier": tier})
    nothing = {"tables": {"user": {}}, "totals": dict.fromkeys([*totals, "num_evicted"], 0)}
    assert "rows 0 in 1 table" in shown({**RESULT, "embedding_tier": nothing})


def test_what_a_job_does_not_have_is_left_out() -> None:
    lines = shown({"job": "e-1", "state": "succeeded", "test": {"auc": 0.5, "logloss": 0.7, "num_samples": 10}})
    assert lines == ["job e-1 succeeded", "test AUC 0.50000, logloss 0.70000 on 10 samples"]
