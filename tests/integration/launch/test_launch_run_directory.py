"""The private folder of a cluster, and those that a killed launcher left behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from geartrain.launch.run_directory import run_directory

ABANDON = """
import os, sys
from geartrain.launch.run_directory import run_directory
with run_directory() as folder:
    print(folder, flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short temporary folder of the test's own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)


def test_a_folder_of_a_killed_launcher_is_removed_by_the_next(base: Path) -> None:
    left = subprocess.run([sys.executable, "-c", ABANDON, "killed"], capture_output=True, text=True, check=False)
    folder = Path(left.stdout.strip())
    assert folder.is_dir() and folder.parent == base
    with run_directory() as mine:
        assert mine.is_dir()
        assert not folder.exists()
    assert list(base.iterdir()) == []


def test_a_folder_in_use_is_left_alone(base: Path) -> None:
    with run_directory() as first, run_directory() as second:
        assert first.is_dir() and second.is_dir() and first != second


def test_a_long_temporary_folder_is_not_used(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = base / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with run_directory() as folder:
        assert folder.parent == Path("/tmp")
