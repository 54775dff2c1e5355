"""Training speed of a whole local cluster, as a share of what the dense tower alone reaches on the same cores.

Data: Criteo-like (26 categorical slots with 5 million Zipf ids in all, 13 numeric columns, parquet). Model: DeepFM, dim
16, 256-128-64, batch 8192, rowwise Adagrad on the rows, Adam on the tower; 2 servers and 2 workers.

The ceiling is the tower with its optimizer in 2 processes of one thread, each fed its half of the batch as one fixed
random tensor [B, 26, 16] that requires a gradient, plus the numeric inputs: no reading, no embedding tier, no exchange.
Ceiling and run alternate; the figures are medians.
"""

from __future__ import annotations

import itertools
import json as jsonlib
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from geartrain.config import JobConfig, parse_config
from geartrain.data.synthetic import CATEGORICAL_NAMES, NUMERIC_NAMES, write_criteo_like
from geartrain.launch.local import ClusterSpec, LocalCluster

BATCHES = 262
ROUNDS = 3
BATCH = 8192
DIM = 16
HIDDEN = (256, 128, 64)
WORKERS = 2
SERVERS = 2
CEILING_WARMUP, CEILING_STEPS = 5, 60


def main(json: bool, quick: bool = False) -> int:
    """Run the benchmark and print one JSON line, or a table."""
    num_batches, rounds = (8, 1) if quick else (BATCHES, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="geartrain-bench-") as folder:
        data = Path(folder) / "data"
        write_criteo_like(data, num_batches * BATCH, seed=1)
        config = job_config(data)
        ceilings, runs = [], []
        for _ in range(rounds):
            ceilings.append(ceiling_samples_per_s())
            runs.append(run_once(config, data))
            if not json:
                print(f"ceiling {ceilings[-1]:12,.0f} samples/s    run {runs[-1]['samples_per_s']:12,.0f} samples/s")
    speed = statistics.median(run["samples_per_s"] for run in runs)
    ceiling = statistics.median(ceilings)
    line = {
        "name": "end-to-end",
        "samples_per_s": round(speed),
        "ceiling_samples_per_s": round(ceiling),
        "ratio": round(speed / ceiling, 4),
        "ratios": [round(run["samples_per_s"] / top, 4) for run, top in zip(runs, ceilings, strict=True)],
        "step_ms_p50": runs[-1]["workers"][0]["step_ms"]["p50"],
        "wait_ms_p50": runs[-1]["workers"][0]["wait_ms"]["p50"],
    }
    if json:
        print(jsonlib.dumps(line))
    else:
        print(f"median: {speed:,.0f} of {ceiling:,.0f} samples/s, ratio {speed / ceiling:.3f}")
    return 0


def job_config(data: Path) -> JobConfig:
    """The job, as a user would write it."""
    features: list[dict[str, Any]] = [{"name": name, "kind": "categorical"} for name in CATEGORICAL_NAMES]
    features += [{"name": name, "kind": "numeric", "transform": "log1p"} for name in NUMERIC_NAMES]
    fields = {
        "name": "bench-end-to-end",
        "features": features,
        "label": "label",
        "data": {"root": str(data), "format": "parquet", "train": ["train.parquet"]},
        "model": {"type": "deepfm", "embedding_dim": DIM, "hidden": list(HIDDEN)},
        "training": {
            "passes": 1,
            "batch_size": BATCH,
            "dense_optimizer": {"type": "adam", "lr": 0.001},
            "sparse_optimizer": {"type": "rowwise_adagrad", "lr": 0.05},
        },
    }
    return parse_config(fields, data, [data])


def run_once(config: JobConfig, data: Path) -> dict[str, Any]:
    """Train on a cluster of its own; the job's result."""
    spec = ClusterSpec(
        num_servers=SERVERS,
        devices=("cpu",) * WORKERS,
        listen="127.0.0.1:0",
        output_dir=None,
        allowed_roots=(data,),
        logs_dir=None,
        api_token="bench",
    )
    with LocalCluster(spec) as cluster:
        job = cluster.run_job(config.to_dict(), {"kind": "train"}, lambda _: None)
    if job["state"] != "succeeded":
        raise RuntimeError(f"the job {job['state']}: {job['reason']}")
    result: dict[str, Any] = job["result"]
    return result


def ceiling_samples_per_s() -> float:
    """Samples per second of the towers alone, all processes together."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WORKERS)
    seconds: multiprocessing.Queue[float] = context.Queue()
    processes = [context.Process(target=_tower_process, args=(barrier, seconds)) for _ in range(WORKERS)]
    for process in processes:
        process.start()
    slowest = max(seconds.get() for _ in processes)
    for process in processes:
        process.join()
    return BATCH * CEILING_STEPS / slowest


def _tower_process(barrier: Barrier, seconds: multiprocessing.Queue[float]) -> None:
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    from geartrain.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    torch.manual_seed(0)
    batch, num_numeric = BATCH // WORKERS, 2 * len(NUMERIC_NAMES)
    rows = torch.randn(batch, len(CATEGORICAL_NAMES), DIM, requires_grad=True)
    numeric, labels = torch.randn(batch, num_numeric), torch.randint(0, 2, (batch,)).float()
    sizes = [len(CATEGORICAL_NAMES) * DIM + num_numeric, *HIDDEN]
    layers: list[torch.nn.Module] = []
    for wide, narrow in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(wide, narrow), torch.nn.ReLU()]
    tower = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 1))
    optimizer = torch.optim.Adam(tower.parameters(), lr=0.001)
    started_s = 0.0
    for step in range(CEILING_WARMUP + CEILING_STEPS):
        if step == CEILING_WARMUP:
            barrier.wait()
            started_s = time.perf_counter()
        optimizer.zero_grad()
        rows.grad = None
        logits = tower(torch.cat([rows.flatten(1), numeric], dim=1)).squeeze(1)
        binary_cross_entropy_with_logits(logits, labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    seconds.put(time.perf_counter() - started_s)
