"""Training an example config on real data through the command line, and the result it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("GEARTRAIN_DATA", ROOT.parent / "shared" / "data"))
FOLDERS = {
    "adult_wide_deep": "adult",
    "criteo_8k_deepfm": "criteo_8k",
    "frappe_deepfm": "frappe",
    "ml1m_deepfm": "ml1m",
}


def train(example: str, folder: Path, *options: str) -> dict[str, Any]:
    """The result of `geartrain train examples/<example>.yaml` with 2 servers and 2 workers; skips without its data."""
    needed = DATA / FOLDERS[example]
    if not needed.is_dir():
        pytest.skip(f"the data set is not here: {needed}")
    return train_on(DATA, example, folder, *options)


def train_on(data: Path, example: str, folder: Path, *options: str) -> dict[str, Any]:
    """The same with `data` as $GEARTRAIN_DATA."""
    command = [sys.executable, "-m", "geartrain.cli", "train", f"examples/{example}.yaml", "--json"]
    done = subprocess.run(
        [*command, "--output", str(folder), *options],
        cwd=ROOT,
        env={**os.environ, "GEARTRAIN_DATA": str(data)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
