"""What is wrong with the command, the config, a file or its header is said before any role starts, with status 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_files import write_job
from click.testing import CliRunner

from geartrain.cli import command
from geartrain.launch.home import locked_folder
from geartrain.launch.local import LocalCluster

DATA: dict[str, Any] = {"train": ["train.csv"], "valid": ["valid.csv"], "test": ["test.csv"]}
MODEL: dict[str, Any] = {"type": "deepfm", "embedding_dim": 4, "hidden": [8]}


@pytest.fixture(autouse=True)
def no_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: LocalCluster) -> LocalCluster:
        raise AssertionError("a role would have been started")

    monkeypatch.setattr(LocalCluster, "__enter__", start)


def refusal(*arguments: str) -> str:
    """The line on stderr of a `train` that must be refused; nothing else may be printed, nor a folder be made."""
    result = CliRunner().invoke(command, ["train", *arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"colour": "red"}, ["colour"]),
        ({"training": {"batch_size": "many"}}, ["training.batch_size", "many"]),
        ({"training": {"batch_size": 0}}, ["training.batch_size", "0"]),
        ({"model": {**MODEL, "embedding_dim": 0}}, ["model.embedding_dim", "0"]),
        ({"model": {**MODEL, "type": "transformer"}}, ["model.type", "transformer", "deepfm"]),
        ({"data": {**DATA, "train": ["gone.csv"]}}, ["data.train.0", "gone.csv"]),
        ({"data": {**DATA, "train": ["part-*.csv"]}}, ["data.train.0", "part-*.csv", "at least one file"]),
        ({"data": {**DATA, "test": ["../elsewhere.csv"]}}, ["data.test.0", "../elsewhere.csv"]),
        ({"data": {**DATA, "root": "/"}}, ["data.root", "allowed roots"]),
        ({"label": "click"}, ["click", "train.csv"]),
        ({"features": [{"name": "age", "kind": "categorical"}]}, ["age", "train.csv"]),
    ],
)
def test_a_wrong_config(tmp_path: Path, sections: dict[str, Any], words: list[str]) -> None:
    line = refusal(str(write_job(tmp_path, **sections)))
    for word in words:
        assert word in line


def test_an_empty_data_file(tmp_path: Path) -> None:
    config = write_job(tmp_path)
    (tmp_path / "valid.csv").write_text("")
    assert "valid.csv" in refusal(str(config))


def test_a_data_file_with_nothing_but_a_header(tmp_path: Path) -> None:
    config = write_job(tmp_path)
    (tmp_path / "test.csv").write_text("label,user,price\n")
    assert "test.csv" in refusal(str(config))


def test_no_config_file(tmp_path: Path) -> None:
    assert "nothing.yaml" in refusal(str(tmp_path / "nothing.yaml"))


OPTIONS: list[tuple[Callable[[Path], list[str]], str]] = [
    (lambda folder: ["--set", "training.batch_size=-4"], "training.batch_size"),
    (lambda folder: ["--set", "training.batch_size"], "key.path=value"),
    (lambda folder: ["--sync-group-size", "none"], "sync.group_size"),
    (lambda folder: ["--device", "emulate:name=V100"], "samples_per_s"),
    (lambda folder: ["--device", "tpu", "--device", "cpu"], "tpu"),
    (lambda folder: ["--device", "cpu", "--worker-num", "2"], "one for each of the 2 workers"),
    (lambda folder: ["--resume", str(folder)], "manifest.json"),
    (lambda folder: ["--resume", str(folder), "--init-from", str(folder)], "--init-from"),
]


@pytest.mark.parametrize(("options", "word"), OPTIONS)
def test_a_wrong_option(tmp_path: Path, options: Callable[[Path], list[str]], word: str) -> None:
    assert word in refusal(str(write_job(tmp_path)), *options(tmp_path))


SMALL_CARD = "emulate:samples_per_s=1000,memory_mb=1,sample_kb=500"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "training.batch_size=5"], ["training.batch_size: 5 samples", "hold 4 together"]),
        (["--set", "training.batch_size=6", "--no-heterogeneous"], ["equal shares", "3 for worker w0", "holds 2"]),
        (["--set", "training.precision=fp16"], ["training.precision", "worker w0", "expected auto, or one of fp32"]),
        (["--set", "portrait.initial.w2.samples_per_s=10"], ["portrait.initial.w2", "the workers are w0, w1"]),
    ],
)
def test_what_the_devices_cannot_do(tmp_path: Path, options: list[str], words: list[str]) -> None:
    line = refusal(str(write_job(tmp_path)), "--device", SMALL_CARD, "--device", SMALL_CARD, *options)
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    "options", [["--server-num", "0"], ["--worker-num", "two"], ["--sync-mode", "fast"], ["--redis"]]
)
def test_an_option_that_is_no_option_is_explained(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(command, ["train", str(write_job(tmp_path)), *options])
    assert result.exit_code == 2
    assert options[0] in result.stderr


@pytest.fixture
def no_processes(no_roles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster looks at its folders itself, before its first role."""
    monkeypatch.undo()
    monkeypatch.setattr("geartrain.launch.local.start_role", lambda *_: pytest.fail("a role would have been started"))


def test_a_file_where_the_output_should_go(tmp_path: Path, no_processes: None) -> None:
    config = write_job(tmp_path)
    line = refusal(str(config), "--output", str(config / "below"))
    assert line == f"error: --output: expected a folder that can be written, got {config / 'below'} (not a directory)\n"


def test_an_output_that_another_run_writes_to(tmp_path: Path, no_processes: None) -> None:
    config, output = write_job(tmp_path), tmp_path / "output"
    output.mkdir()
    with locked_folder(output, "--output"):
        line = refusal(str(config), "--output", str(output))
    assert line == f"error: --output: expected a folder that no other run writes to, got {output}\n"


def test_a_file_where_checkpoints_should_go(tmp_path: Path, no_processes: None) -> None:
    config, output = write_job(tmp_path), tmp_path / "output"
    output.mkdir()
    (output / "checkpoints").touch()
    line = refusal(str(config), "--output", str(output))
    assert (
        line == f"error: --output: expected a folder that can be written, got {output / 'checkpoints'} (file exists)\n"
    )


def test_what_a_stopped_save_left_is_no_checkpoint_of_an_earlier_run(tmp_path: Path, no_processes: None) -> None:
    config, output = write_job(tmp_path), tmp_path / "output"
    left, under_way = (output / "checkpoints" / f".tmp-pass-0001-version-{number:08}" for number in (1, 2))
    left.mkdir(parents=True)
    (left / "table.rows").write_bytes(b"half")
    with locked_folder(output, "--output"):
        line = refusal(str(config), "--output", str(output))
    assert "no other run writes to" in line, "only the next check refuses it"
    assert list((output / "checkpoints").iterdir()) == []
    under_way.mkdir()
    with locked_folder(under_way, "--output"):
        line = refusal(str(config), "--output", str(output))
    assert "has checkpoints of an earlier run" in line and under_way.is_dir()


def test_an_output_with_the_checkpoints_of_an_earlier_run(tmp_path: Path, no_processes: None) -> None:
    config, output = write_job(tmp_path), tmp_path / "output"
    (output / "checkpoints" / "pass-0001-version-00000004").mkdir(parents=True)
    line = refusal(str(config), "--output", str(output))
    assert line.startswith(f"error: --output: {output / 'checkpoints'} has checkpoints of an earlier run")
