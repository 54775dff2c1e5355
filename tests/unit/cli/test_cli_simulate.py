"""`geartrain simulate`: from two files to a table, or to one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import run as run_process
from typing import Any

import pytest
from cli_files import write_job
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from geartrain.cli import command

MIXED = [
    {"device": "emulate:name=A100,samples_per_s=6000", "count": 2},
    {"device": "emulate:name=V100,samples_per_s=3000", "count": 2},
]


def write_cluster(folder: Path, **fields: Any) -> Path:
    path = folder / "cluster.yaml"
    with path.open("w") as file:
        YAML().dump({"workers": MIXED, "num_rows": 10_000, **fields}, file)
    return path


def simulate(folder: Path, *arguments: str, job: dict[str, Any] | None = None, **fields: Any) -> Result:
    paths = [str(write_cluster(folder, **fields)), str(write_job(folder, **(job or {})))]
    return CliRunner().invoke(command, ["simulate", *paths, *arguments])


def test_a_table_for_people(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--set", "training.batch_size=1000")
    assert result.exit_code == 0, result.output
    for text in (
        "nothing was trained",
        "Groups",
        "emulate:V100",
        "computing",
        "equal shares in one group",
        "as chosen",
    ):
        assert text in result.output


def test_json_is_the_last_line(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--set", "training.batch_size=1000", "--json")
    told = json.loads(result.output.splitlines()[-1])
    assert told["samples"] == 10_000  # one pass
    assert [group["members"] for group in told["groups"]] == [["w0", "w1"], ["w2", "w3"]]
    assert told["servers"] == 2


def test_steps_and_seed(tmp_path: Path) -> None:
    cards = [{"device": "emulate:samples_per_s=3000,jitter=0.2", "count": 4}]
    arguments = ("--set", "training.batch_size=1000", "--steps", "30", "--json")
    first, again, other = (
        json.loads(simulate(tmp_path, *arguments, "--seed", seed, workers=cards).output) for seed in ("1", "1", "2")
    )
    assert first["samples"] == 30_000  # three passes of 10,000
    assert first == again
    assert first["seconds"] != other["seconds"]


def test_data_need_not_exist_where_the_cluster_file_describes_them(tmp_path: Path) -> None:
    nowhere = {"root": "${NO_SUCH_FOLDER}/x", "format": "csv", "train": ["train.csv"]}
    result = simulate(tmp_path, "--set", "training.batch_size=1000", "--json", job={"data": nowhere})
    assert result.exit_code == 0, result.output


def test_data_are_read_where_it_does_not(tmp_path: Path) -> None:
    features = [
        {"name": "user", "kind": "categorical"},
        {"name": "seen", "kind": "sequence", "table": "user"},
        {"name": "price", "kind": "numeric"},
    ]
    path = write_job(tmp_path, features=features, training={"passes": 2, "batch_size": 100})
    lines = [f"{number % 2},u{number % 7},{'|'.join(['x'] * (1 + number % 3))},0.5" for number in range(900)]
    (tmp_path / "train.csv").write_text("label,user,seen,price\n" + "\n".join(lines) + "\n")
    cards = [{"device": "emulate:samples_per_s=100000,tokens_per_s=1000", "count": 2}]
    cluster = write_cluster(tmp_path, workers=cards, num_rows=None)
    result = CliRunner().invoke(command, ["simulate", str(cluster), str(path), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.output.splitlines()[-1])
    assert told["samples"] == 1800
    # Two tokens a sample at 1,000 a second are nearly all of the time of each of the two cards.
    assert 1800 * 2 / 1000 / 2 < told["seconds"] < 2.6


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    result = simulate(tmp_path, num_rows=None, job={"data": {"train": ["gone.csv"]}})
    assert result.exit_code == 2
    assert "gone.csv" in result.output


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda:0", 'expected emulate:samples_per_s=N,..., got "cuda:0"'),
        ("emulate:name=A,jitter=x", "samples_per_s: expected a number"),
        ("tpu", "no such kind of device"),
    ],
)
def test_a_wrong_device_is_named_by_file_and_field(tmp_path: Path, device: str, words: str) -> None:
    result = simulate(tmp_path, workers=[*MIXED, {"device": device}])
    assert result.exit_code == 2
    assert result.output.startswith(f"error: {tmp_path / 'cluster.yaml'}: workers.2.device")
    assert words in result.output
    assert "--device" not in result.output


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ("training.precision=bf16", "training.precision: worker w0"),
        ("portrait.initial.w4.samples_per_s=9", "portrait.initial.w4"),
        ("training.batch_size=900", "training.batch_size: 900 samples"),
    ],
)
def test_what_a_real_job_is_refused_for_is_refused(tmp_path: Path, options: str, field: str) -> None:
    cards = [{"device": "emulate:samples_per_s=3000,memory_mb=1,sample_kb=5", "count": 4}]
    result = simulate(tmp_path, "--set", options, workers=cards)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {field}")
    assert simulate(tmp_path, "--set", "training.batch_size=800", workers=cards).exit_code == 0


def test_a_wrong_config_is_named(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--set", "training.batch_size=0")
    assert result.exit_code == 2
    assert "training.batch_size" in result.output


def test_a_cluster_that_dies_out_fails(tmp_path: Path) -> None:
    dying = [{**one, "dies_at_s": 0.5} for one in MIXED]
    result = simulate(tmp_path, "--set", "training.batch_size=1000", "--steps", "100", workers=dying)
    assert result.exit_code == 1
    assert "all workers have died" in result.output


@pytest.mark.parametrize(("options", "shown"), [([], True), (["--json"], False)])
def test_progress_is_shown_unless_a_program_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], shown: bool
) -> None:
    told: list[tuple[str, int, int]] = []

    @contextmanager
    def show(console: object) -> Iterator[Callable[[str, int, int], None]]:
        yield lambda *stand: told.append(stand)

    monkeypatch.setattr("geartrain.progress.show_simulation", show)
    result = simulate(tmp_path, "--set", "training.batch_size=100", "--steps", "500", *options)
    assert result.exit_code == 0, result.output
    assert bool(told) == shown
    if shown:
        job = [(done, total) for what, done, total in told if what == "the job"]
        assert job == sorted(job) and job[-1] == (50_000, 50_000)
        assert 300 < len(job) <= 500  # often enough for a bar, however many steps there are
        assert ("equal shares in one group", 20_000, 20_000) in told
    assert "simulating" not in result.output


def test_torch_is_not_imported(tmp_path: Path) -> None:
    paths = [str(write_cluster(tmp_path)), str(write_job(tmp_path))]
    script = (
        "import sys; from click.testing import CliRunner; from geartrain.cli import command; "
        f"result = CliRunner().invoke(command, ['simulate', *{paths!r}, '--steps', '3']); "
        "sys.exit(result.exit_code or 10 * ('torch' in sys.modules))"
    )
    assert run_process([sys.executable, "-c", script], check=False).returncode == 0
