"""Real data for the benchmarks of unlike hardware, in the length that a run needs: Frappe, and Amazon Beauty."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from geartrain.errors import DataFileError

FRAPPE_FIELDS = ["user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city"]
MAX_HISTORY = 50
GOLDEN = (5**0.5 - 1) / 2

Sample: TypeAlias = tuple[int, str, list[str]]
"""Label, item, and the items before it."""


def data_folder(name: str, file: str) -> Path:
    """`$GEARTRAIN_DATA/name`. Raises `DataFileError` that says what to put there."""
    root = os.environ.get("GEARTRAIN_DATA")
    folder = Path(root or "$GEARTRAIN_DATA") / name
    if root is None or not (folder / file).is_file():
        raise DataFileError(
            f"{folder / file}: the benchmark needs this file; set GEARTRAIN_DATA to the folder that holds {name}/",
            file=str(folder / file),
            expected=f"a folder with {name}/{file}",
        )
    return folder


def write_frappe(folder: Path, num_rows: int) -> dict[str, Any]:
    """The first `num_rows` rows of Frappe's training file, from its beginning again where it is too short; the parts
    of a config that describe them."""
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(data_folder("frappe", "train.csv.gz") / "train.csv.gz", "rt", encoding="utf-8") as file:
        header, *rows = file.readlines()
    with (folder / "train.csv").open("w", encoding="utf-8") as file:
        file.write(header)
        file.writelines(itertools.islice(itertools.cycle(rows), num_rows))
    return {
        "features": [{"name": name, "kind": "categorical"} for name in FRAPPE_FIELDS],
        "label": "label",
        "data": {"root": str(folder), "format": "csv", "header": True, "train": ["train.csv"]},
    }


def write_beauty(folder: Path, num_rows: int) -> dict[str, Any]:
    """`num_rows` samples of Amazon Beauty: the items a user had before, and the next one or another; as `write_frappe`.

    Histories have 1 to 50 items, 7.9 on average; those of a few rows are as long as those of all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    samples = _spread(list(_beauty_samples()))
    with (folder / "train.csv").open("w", encoding="utf-8") as file:
        file.write("label,item,history\n")
        for label, item, history in itertools.islice(itertools.cycle(samples), num_rows):
            file.write(f"{label},{item},{'|'.join(history)}\n")
    return {
        "features": [
            {"name": "item", "kind": "categorical"},
            {"name": "history", "kind": "sequence", "table": "item", "max_length": MAX_HISTORY, "pooling": "mean"},
        ],
        "label": "label",
        "data": {"root": str(folder), "format": "csv", "header": True, "train": ["train.csv"]},
    }


def _beauty_samples() -> Iterator[Sample]:
    lines = (data_folder("beauty_seq", "beauty.txt") / "beauty.txt").read_text(encoding="ascii").splitlines()
    pairs = [line.split() for line in lines]
    items = [item for _, item in pairs]
    others = np.random.default_rng(1).integers(0, len(items), len(items))
    for _, visits in itertools.groupby(enumerate(pairs), key=lambda numbered: numbered[1][0]):
        history: list[str] = []
        for place, (_, item) in visits:
            if history:
                label = int(others[place]) & 1
                yield label, item if label else items[others[place]], history[-MAX_HISTORY:]
            history.append(item)


def _spread(samples: Sequence[Sample]) -> list[Sample]:
    """The samples in an order in which each stretch has short and long histories as the whole has: steps of the golden
    ratio through all of them by length, which fill a circle evenly at any time (Weyl's sequence)."""
    by_length = sorted(samples, key=lambda sample: len(sample[2]))
    ranks = np.argsort(np.argsort(np.arange(len(samples)) * GOLDEN % 1.0))
    return [by_length[rank] for rank in ranks]
