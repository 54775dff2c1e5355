"""The benchmarks themselves run, on a small scale, and print the lines that were promised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.update_rule import SPARSE_KINDS

DATA = Path(os.environ.get("GEARTRAIN_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
KERNELS = ["lookup", "gather_fused", *(f"update_fused_{kind}" for kind in SPARSE_KINDS), "dedup", "segment_sum"]
CODECS = [f"{direction}_{codec}" for direction in ("encode", "decode") for codec in ("fp16", "bf16", "int8")]


def bench(*arguments: str) -> list[dict[str, Any]]:
    """The JSON lines of a benchmark, which must end well."""
    command = [sys.executable, "-P", "-m", "geartrain.cli", "bench", *arguments, "--quick", "--json"]
    environment = {**os.environ, "GEARTRAIN_DATA": str(DATA)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_kernels() -> None:
    lines = bench("kernels")
    names = {line["name"] for line in lines}
    assert names >= {*KERNELS, *CODECS, "fbgemm_pooled", "fbgemm_unpooled"}
    for line in lines:
        assert line.keys() >= {"name", "threads", "rows_per_s", "limit_rows_per_s", "share_of_limit"}
        if "missing" not in line:
            share = line["rows_per_s"] / line["limit_rows_per_s"]
            assert line["share_of_limit"] == pytest.approx(share, abs=1e-4)
    assert {line["threads"] for line in lines if line["name"] == "lookup"} == {1, 2}
    by_source = [(line["name"], line["rows_from"]) for line in lines if line["name"] in CODECS]
    assert sorted(by_source) == sorted((name, source) for name in CODECS for source in ("caches", "memory"))


def test_tier() -> None:
    lines = bench("tier")
    by_name = {line["name"]: line for line in lines}
    for name in ("pull_ipc", "pull_tcp", "pull_clients", "push_apply", "growth", "snapshot"):
        assert by_name[name].keys() >= {"rows_per_s", "p50_ms", "p99_ms"}
        assert by_name[name]["rows_per_s"] > 0
    for name in ("pull_ipc", "pull_tcp", "push_apply"):
        share = by_name[name]["rows_per_s"] / by_name[name]["limit_rows_per_s"]
        assert by_name[name]["share_of_limit"] == pytest.approx(share, abs=1e-3)
    assert by_name["growth"]["num_rows"] == 40_000
    assert by_name["memory_bounded"]["most_rows"] <= by_name["memory_bounded"]["max_rows"]
    loads = [line for line in lines if line["name"] == "load"]
    assert [line["servers"] for line in loads] == [1, 2]
    assert all(line["same_rows"] and line["same_next_step"] and line["num_rows"] == 20_000 for line in loads)


needs_frappe = pytest.mark.skipif(not (DATA / "frappe").is_dir(), reason=f"the data set is not here: {DATA / 'frappe'}")


@needs_frappe
def test_heterogeneity() -> None:
    (line,) = bench("heterogeneity")
    assert line["name"] == "3:2:1:1"
    assert line["sum_of_solo_samples_per_s"] <= 14_000
    assert line["equal_shares_samples_per_s"] <= 8_000
    assert line["speedup_over_equal_shares"] > 1
    assert line["simulated_samples_per_s"] == pytest.approx(14_000, rel=0.1)
    assert sorted(worker for group in line["groups"] for worker in group) == ["w0", "w1", "w2", "w3"]
    assert line["reached"] is (line["missed"] == [])


@pytest.mark.slow
@needs_frappe
def test_convergence() -> None:
    lines = bench("convergence")
    assert [line["name"] for line in lines] == [
        "sync-1-worker",
        "hybrid-3:2:1:1",
        "async-8-groups",
        "async-8-groups-no-decay",
        "async-8-groups-no-step-scale",
    ]
    for line in lines:
        assert line["num_seeds"] == 1
        assert line["sync_auc_mean"] == lines[0]["auc_mean"]
        assert line["difference"] == pytest.approx(line["auc_mean"] - line["sync_auc_mean"], abs=2e-6)
        assert line["groups"] == [8] or not line["name"].startswith("async")
