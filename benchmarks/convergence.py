"""What unlike hardware and stale gradients cost in accuracy: the test AUC on Frappe, over seeds, beside plain sync.

Every run trains `examples/frappe_deepfm.yaml` for the same number of passes; the best pass counts, as there. Sync on
one worker is what the others are compared with: four unlike cards whose groups merge in a window, and eight groups of
one that wait for nobody, as they are and (fewer seeds, only to be seen) without what Geartrain does against staleness.
Cards are emulated. On two cores it takes somewhat less than an hour.
"""

from __future__ import annotations

import gzip
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from benchmarks.support.emulated_runs import Card, run_on
from benchmarks.support.lines import Line, put_out
from benchmarks.support.unlike_data import data_folder
from geartrain.config import load_config

EXAMPLE = Path(__file__).parents[1] / "examples" / "frappe_deepfm.yaml"
SEEDS = (1, 2, 3, 4, 5)
SHOWN_SEEDS = 2
"""So many seeds are run of what has no limit."""
PASSES = 20
QUICK_ROWS, QUICK_PASSES = 4096, 1
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Case:
    """A way to train. `most_apart`: the mean AUC must be within this of sync's; None: it is only shown."""

    name: str
    devices: tuple[str, ...]
    settings: tuple[str, ...]
    most_apart: float | None = None


# So fast that the host can still stand in for all of them at once, tower and all.
UNLIKE = tuple(Card(name, speed).spec for name, speed in (("A", 9000), ("B", 6000), ("C", 3000), ("C", 3000)))
# Faster than that: here it does not matter who arrives when, only that nobody waits.
ALIKE = (Card("D", 5000).spec,) * 8
ASYNC = ("sync.mode=async", "sync.group_size=1", "heterogeneous=false")

SYNC = Case("sync-1-worker", ("cpu",), ("sync.mode=sync", "heterogeneous=false"))
OTHERS = (
    Case("hybrid-3:2:1:1", UNLIKE, ("sync.mode=hybrid",), most_apart=0.001),
    Case("async-8-groups", ALIKE, ASYNC, most_apart=0.003),
    Case("async-8-groups-no-decay", ALIKE, (*ASYNC, "sync.staleness_decay=1.0")),
    Case("async-8-groups-no-step-scale", ALIKE, (*ASYNC, "sync.step_scale=false")),
)


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    return put_out(lines(quick), json, convergence_table)


def lines(quick: bool, seeds: Sequence[int] = SEEDS) -> Iterator[Line]:
    """Sync's line, then the others'; `quick`: one seed, one pass, few rows."""
    passes, seeds = (QUICK_PASSES, seeds[:1]) if quick else (PASSES, seeds)
    with _data(quick) as root:
        sync = [_train(SYNC, root, passes, seed) for seed in seeds]
        yield line_of(SYNC, sync, sync)
        for case in OTHERS:
            chosen = seeds if case.most_apart is not None else seeds[:SHOWN_SEEDS]
            results = [_train(case, root, passes, seed) for seed in chosen]
            yield line_of(case, results, sync[: len(chosen)])


def line_of(case: Case, results: Sequence[dict[str, Any]], sync: Sequence[dict[str, Any]]) -> Line:
    """The line of a case, from the results of its runs and of sync's with the same seeds. `auc_std` is of the runs, not
    of their mean."""
    aucs, sync_aucs = ([float(one["test"]["auc"]) for one in of] for of in (results, sync))
    apart = statistics.fmean(aucs) - statistics.fmean(sync_aucs)
    limit = case.most_apart
    return {
        "name": case.name,
        "auc_mean": round(statistics.fmean(aucs), 6),
        "auc_std": round(statistics.stdev(aucs), 6) if len(aucs) > 1 else 0.0,
        "num_seeds": len(aucs),
        "sync_auc_mean": round(statistics.fmean(sync_aucs), 6),
        "difference": round(apart, 6),
        "limit": limit,
        "reached": None if limit is None else abs(apart) <= limit,
        "aucs": [round(auc, 6) for auc in aucs],
        "best_passes": [one["best_pass"] for one in results],
        "groups": [len(one["groups"]) for one in results],
        "max_staleness": max(one["staleness"]["max"] for one in results),
        "samples_per_s": round(statistics.fmean(one["samples_per_s"] for one in results)),
    }


def _train(case: Case, root: Path, passes: int, seed: int) -> dict[str, Any]:
    """The result of one run."""
    # Patience for all passes: every run has as many, and its best one counts.
    settings = {
        "data.root": root,
        "training.passes": passes,
        "training.seed": seed,
        "training.early_stopping.patience": passes,
    }
    overrides = [*(f"{name}={value}" for name, value in settings.items()), *case.settings]
    config = load_config(EXAMPLE, overrides, [root])
    return dict(run_on(case.devices, config).result)


@contextmanager
def _data(quick: bool) -> Iterator[Path]:
    """The folder with Frappe's splits; for `quick` one with the first rows of each, gone afterwards."""
    whole = data_folder("frappe", "train.csv.gz")
    if not quick:
        yield whole
        return
    with tempfile.TemporaryDirectory(prefix="geartrain-bench-") as folder:
        for name in (f"{split}.csv.gz" for split in SPLITS):
            with gzip.open(whole / name, "rt", encoding="utf-8") as file, gzip.open(Path(folder) / name, "wt") as part:
                part.writelines(itertools.islice(file, 1 + QUICK_ROWS))
        yield Path(folder)


def convergence_table(gathered: Sequence[Line]) -> Table:
    """A case a row."""
    table = Table(title="Convergence on Frappe, test AUC", title_justify="left", box=SIMPLE)
    table.add_column("case", no_wrap=True)
    for title in ("mean", "std", "seeds", "from sync", "limit", "reached", "max staleness", "samples/s"):
        table.add_column(title, justify="right")
    for line in gathered:
        limit, reached = line["limit"], line["reached"]
        table.add_row(
            line["name"],
            f"{line['auc_mean']:.5f}",
            f"{line['auc_std']:.5f}",
            str(line["num_seeds"]),
            f"{line['difference']:+.5f}",
            "" if limit is None else f"{limit:.3f}",
            "" if reached is None else "yes" if reached else "no",
            str(line["max_staleness"]),
            f"{line['samples_per_s']:,}",
        )
    return table
