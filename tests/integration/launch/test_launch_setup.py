"""Ports that are taken, and set-ups that cannot go on, are said in one line."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from geartrain.launch.role_process import geartrain_command

ROOT = Path(__file__).parents[3]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def geartrain(folder: Path, role: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A command of this installation, run in `folder`."""
    return subprocess.run(
        geartrain_command(role, options),
        env={**os.environ, "GEARTRAIN_HOME": str(folder / "home")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("role", "option"), [("coordinator", "--listen=127.0.0.1:{}"), ("up", "--port={}")])
def test_a_port_in_use(tmp_path: Path, taken_port: int, role: str, option: str) -> None:
    done = geartrain(tmp_path, role, option.format(taken_port))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{taken_port}" in done.stderr
    assert not list(tmp_path.rglob("*.log"))


def test_a_folder_in_the_working_directory_hides_no_package(tmp_path: Path, taken_port: int) -> None:
    """`coordinator` and `kernels` are likely names for folders of a user."""
    for name in ("coordinator", "kernels", "api"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')")
    done = geartrain(tmp_path, "coordinator", f"--listen=127.0.0.1:{taken_port}")
    assert (done.returncode, "not ours" in done.stderr) == (2, False)


def setup(folder: Path, **tools: str) -> subprocess.CompletedProcess[str]:
    """The set-up script where nothing but `tools` (name: script) is on the path."""
    path = folder / "bin"
    path.mkdir()
    for name, script in tools.items():
        tool = path / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    return subprocess.run(
        ["/bin/bash", str(ROOT / "scripts" / "setup.sh"), str(folder / "venv")],
        env={"PATH": str(path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_compiler(tmp_path: Path) -> None:
    done = setup(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "setup: a C++ compiler is missing (g++, or set CXX); the native kernels are built with it\n"


def test_a_missing_python(tmp_path: Path) -> None:
    done = setup(tmp_path, **{"g++": "exit 0", "python3": "exit 1"})
    assert done.returncode == 1
    assert done.stderr == "setup: Python >= 3.11 with its venv module is missing (or set PYTHON to one)\n"
    assert not (tmp_path / "venv").exists()
