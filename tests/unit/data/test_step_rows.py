"""How many different rows steps need, against sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from geartrain.config import JobConfig
from geartrain.data.index import build_index
from geartrain.data.step_rows import count_step_rows


def write(folder: Path, num_rows: int) -> tuple[JobConfig, list[set[str]]]:
    random = np.random.default_rng(5)
    users, items = random.integers(0, 50, num_rows), random.integers(0, 9, (num_rows, 3))
    lines = [
        f"{number % 2},u{user},{'|'.join(f'i{item}' for item in bag)}"
        for number, (user, bag) in enumerate(zip(users, items, strict=True))
    ]
    (folder / "train.csv").write_text("label,user,items\n" + "\n".join(lines) + "\n")
    config = JobConfig.from_resolved(
        {
            "features": [
                {"name": "user", "kind": "categorical"},
                {"name": "items", "kind": "sequence", "table": "item"},
            ],
            "label": "label",
            "data": {"root": str(folder), "format": "csv", "train": ["train.csv"], "shuffle": False},
            "model": {"type": "lr"},
        }
    )
    rows = [{f"u{user}", *(f"i{item}" for item in bag)} for user, bag in zip(users, items, strict=True)]
    return config, rows


def test_rows_of_a_step_are_counted_once(tmp_path: Path) -> None:
    config, rows = write(tmp_path, 300)
    sizes, counted = count_step_rows(config, build_index(config, ("train",), standard={}), largest=256)
    assert sizes.tolist() == [0, 16, 32, 64, 128, 256]
    assert counted[0] == 0
    assert counted[-1] == len(set().union(*rows[:256]))
    blocks = [len(set().union(*rows[start : start + 64])) for start in (0, 64, 128, 192)]
    assert counted[3] == round(sum(blocks) / 4)
    assert (np.diff(counted) > 0).all()


def test_fewer_samples_than_asked_for(tmp_path: Path) -> None:
    config, rows = write(tmp_path, 10)
    sizes, counted = count_step_rows(config, build_index(config, ("train",), standard={}), largest=4096)
    assert sizes.tolist() == [0, 10]
    assert counted.tolist() == [0, len(set().union(*rows))]
