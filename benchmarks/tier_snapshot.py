"""Snapshots of 10 million rows: pulls while one is written, and what it takes to load it with other servers.

`snapshot`: one server and one client that pulls 40,000 keys a request. Runs with and without a snapshot take turns; a
run with one lasts as long as it is written, a run without as long as the last one before it.

`load`: three servers save; 1, 2, 5 and 7 load it, each its own shards. Rows are compared bit for bit with what the
three answered, before and after the next window. Memory: by how much the servers grew at their peak, together, over
what their tables occupy.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.support.client_process import ClientPlan, ClientProcess, Times
from benchmarks.support.latencies import milliseconds
from benchmarks.support.lines import Line, figures_table, put_out
from benchmarks.support.measuring import percentile
from benchmarks.support.memory_use import peak_resident_bytes
from benchmarks.support.samples import DIM, uniform_keys
from benchmarks.support.step_sums import StepSums
from benchmarks.support.tier_cluster import TABLE, TERM, TierCluster
from geartrain.checkpoint_layout import write_manifest
from geartrain.memory import keep_freed_memory
from geartrain.types import Floats
from geartrain.wire.messages import SnapshotBegun, SnapshotTaken, TakeSnapshot

SAVING_SERVERS = 3


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    num_rows: int = 10_000_000
    keys_per_pull: int = 40_000
    rounds: int = 3
    servers: tuple[int, ...] = (1, 2, 5, 7)
    compared_keys: int = 200_000


QUICK = Scale(20_000, 1_000, 1, (1, 2), 2_000)


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    return put_out(lines(quick), json, lambda gathered: figures_table("Snapshots", gathered))


def lines(quick: bool) -> Iterator[Line]:
    """`snapshot`, and `load` for each number of servers."""
    scale = QUICK if quick else Scale()
    keep_freed_memory()
    yield _pulls_beside_snapshots(scale)
    yield from _loads(scale)


def _pulls_beside_snapshots(scale: Scale) -> Line:
    with TierCluster() as tier:
        tier.fill(scale.num_rows)
        plan = ClientPlan(tier.route, "c0", tier.token, scale.num_rows, scale.keys_per_pull, version=tier.version)
        without: list[Times] = []
        beside: list[Times] = []
        seconds: list[float] = []
        num_bytes = 0
        with ClientProcess(plan) as client:
            client.run("pull", 100)
            for number in range(scale.rounds):
                folder = tier.directory / f"snapshot-{number}"
                folder.mkdir()
                began_s = time.perf_counter()
                client.begin("pull", 0)
                _take(tier, folder, number)
                client.interrupt()
                seconds.append(time.perf_counter() - began_s)
                beside.append(client.finish())
                num_bytes = sum(file.stat().st_size for file in folder.iterdir())
                for file in folder.iterdir():
                    file.unlink()
                without.append(client.run("pull", len(beside[-1].request_s)))
    calm = [time for run in without for time in run.request_s]
    busy = [time for run in beside for time in run.request_s]
    ratio = percentile(busy, 99) / percentile(calm, 99)
    return {
        "name": "snapshot",
        "rows_per_s": round(scale.num_rows * scale.rounds / sum(seconds)),
        **milliseconds(busy, 50, 99),
        "p50_without_ms": milliseconds(calm, 50)["p50_ms"],
        "p99_without_ms": milliseconds(calm, 99)["p99_ms"],
        "p99_over_without": round(ratio, 3),
        "longest_ms": round(max(busy) * 1000, 3),
        "longest_without_ms": round(max(calm) * 1000, 3),
        "pulls": len(busy),
        "snapshot_s": round(max(seconds), 3),
        "snapshot_bytes": num_bytes,
    }


def _take(tier: TierCluster, folder: Path, number: int) -> None:
    """Have every server write its part, and wait for the last one."""
    tier.ask(TakeSnapshot(TERM, number, tier.version, str(folder)), SnapshotBegun)
    parts = tier.wait(SnapshotTaken)
    files = {name: about for part in parts.values() for name, about in part.files.items()}
    manifest = {"job": "bench", "term": TERM, "version": tier.version, "files": files, "base": None}
    write_manifest(folder, manifest)


def _loads(scale: Scale) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="gt-bench-") as name:
        folder = Path(name)
        with TierCluster(SAVING_SERVERS) as tier:
            tier.fill(scale.num_rows)
            version = tier.version
            _take(tier, folder, 0)
            before, after = _rows_and_next(tier, scale)
        for num_servers in scale.servers:
            began_s = time.perf_counter()
            with TierCluster(num_servers, restore=folder, version=version) as tier:
                seconds = time.perf_counter() - began_s
                peak = {role.name: peak_resident_bytes(role.process.pid) for role in tier.processes}
                stats = tier.fresh_stats()
                rows, following = _rows_and_next(tier, scale)
            grown = sum(peak[one] - tier.resident_bytes[one] for one in tier.names)
            tables = [one.tables[TABLE] for one in stats.values()]
            yield {
                "name": "load",
                "servers": num_servers,
                "from_servers": SAVING_SERVERS,
                "num_rows": sum(table.num_rows for table in tables),
                "start_and_load_s": round(seconds, 3),
                "same_rows": bool(np.array_equal(rows, before)),
                "same_next_step": bool(np.array_equal(following, after)),
                "peak_over_table": round(grown / sum(table.bytes for table in tables), 4),
            }


def _rows_and_next(tier: TierCluster, scale: Scale) -> tuple[Floats, Floats]:
    """Rows of some keys, and the same after a window that updates them."""
    step = scale.num_rows // scale.compared_keys
    all_keys = uniform_keys(0, scale.num_rows)[::step].copy()
    keys, counts = tier.layout(all_keys)
    order = np.argsort(keys)
    grads = np.random.default_rng(7).standard_normal((len(keys), DIM)).astype(np.float32)
    by_key = np.empty_like(grads)
    by_key[order] = grads
    client = tier.client()
    rows, following = np.empty_like(grads), np.empty_like(grads)
    client.pull(keys, counts, tier.version, rows)
    tier.push(client, keys, counts, StepSums(by_key))
    client.pull(keys, counts, tier.version, following)
    client.close()
    return rows[order], following[order]
