"""The commands that talk to a running cluster, and the small ones."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cli_files import write_job
from click.testing import CliRunner, Result

from geartrain.cli import command
from geartrain.commands import jobs, tools
from geartrain.commands.jobs import portable_config
from geartrain.errors import DownloadError, NotFoundError
from geartrain.launch.home import cluster_token
from geartrain.launch.role_process import last_line

JOB: dict[str, Any] = {
    "id": "tiny-1",
    "name": "tiny",
    "state": "training",
    "reason": "pass 1 of 2",
    "error": None,
    "progress": {"samples": 1500, "num_rows": 1000, "passes": 2, "pass_index": 1},
    "result": None,
}


class StandInClient:
    """In place of `GeartrainClient`."""

    ended: Any = None
    submitted: Any = None

    def __enter__(self) -> StandInClient:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, config: dict[str, Any]) -> dict[str, Any]:
        StandInClient.submitted = config
        return {"id": "tiny-1", "state": "queued"}

    def wait(self, job: str, observe: Any) -> dict[str, Any]:
        observe(JOB)
        return {**JOB, **(StandInClient.ended or {})}

    def jobs(self) -> list[dict[str, Any]]:
        return [JOB]

    def job(self, job: str) -> dict[str, Any]:
        if job != "tiny-1":
            raise NotFoundError(f"there is no job {job}", job=job)
        return JOB

    def cancel(self, job: str) -> dict[str, Any]:
        return {**JOB, "state": "cancelled"}

    def tier_stats(self) -> dict[str, Any]:
        load = {"num_rows": 12345, "bytes": 999, "pull_rows_per_s": 1.5, "pull_p50_ms": None}
        return {"job": "tiny-1", "servers": [{"server": "s0", "table": "user", **load}], "tables": {}, "totals": load}


@pytest.fixture(autouse=True)
def urls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def client_of(coordinator: str, deadline_s: float = 1.0) -> StandInClient:
        asked.append(coordinator)
        return StandInClient()

    monkeypatch.setattr(jobs, "client_of", client_of)
    return asked


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_submit_prints_the_jobs_id(tmp_path: Path, urls: list[str]) -> None:
    result = run("submit", str(write_job(tmp_path)), "--set", "training.seed=9")
    assert (result.exit_code, result.stdout) == (0, "tiny-1\n")
    assert StandInClient.submitted["training"]["seed"] == 9
    assert urls == ["http://127.0.0.1:8000"]


def test_submit_waits_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = {"job": "tiny-1", "state": "succeeded"}
    monkeypatch.setattr(StandInClient, "ended", {"state": "succeeded", "result": done})
    result = run("submit", str(write_job(tmp_path)), "--wait", "--json", "--coordinator", "http://10.0.0.1:9")
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[-1]) == done
    monkeypatch.setattr(StandInClient, "ended", {"state": "failed", "reason": "worker w0 is silent"})
    result = run("submit", str(write_job(tmp_path)), "--wait")
    assert (result.exit_code, result.stderr) == (1, "error: worker w0 is silent\n")


def test_a_submitted_root_is_absolute_but_variables_stay(tmp_path: Path) -> None:
    config = write_job(tmp_path)
    assert portable_config(config, ())["data"]["root"] == str(tmp_path)
    assert portable_config(config, ("data.root=sub",))["data"]["root"] == str(tmp_path / "sub")
    assert portable_config(config, ("data.root=/data",))["data"]["root"] == "/data"
    variable = "${GEARTRAIN_DATA}/frappe"
    assert portable_config(config, (f"data.root={variable}",))["data"]["root"] == variable


def test_show_has_the_workers_of_a_job_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = {"worker": "w0", "device": "emulate:V100", "group": 0, "samples": 1500}
    report = {"workers": [worker], "groups": [["w0"]], "heterogeneity": {"equal_shares_samples_per_s": 500.0}}
    monkeypatch.setattr(StandInClient, "job", lambda self, job: {**JOB, "report": report})
    shown = " ".join(run("show", "tiny-1").stdout.split())
    assert "w0 emulate:V100 0" in shown
    assert "equal shares would give 500 samples/s" in shown


def test_jobs_and_show_and_cancel_and_stats() -> None:
    line = run("jobs").stdout.splitlines()[1]
    for word in ("tiny-1", "training", "1,500 of 2,000", "pass 1 of 2"):
        assert word in line
    assert json.loads(run("jobs", "--json").stdout) == [JOB]
    assert "1,500 of 2,000" in run("show", "tiny-1").stdout
    assert json.loads(run("show", "tiny-1", "--json").stdout) == JOB
    assert run("cancel", "tiny-1").stdout == "tiny-1 cancelled\n"
    assert "12,345" in run("stats").stdout


def test_an_unknown_job_is_an_error() -> None:
    result = run("show", "tiny-9")
    assert (result.exit_code, result.stderr) == (1, "error: there is no job tiny-9\n")


def test_down_without_a_cluster_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path))
    assert [run("down").stdout, run("down").stdout] == ["no cluster is up\n"] * 2


@pytest.mark.parametrize("role", ["server", "worker"])
def test_a_node_needs_its_coordinator(role: str) -> None:
    result = run(role)
    assert (result.exit_code, "--coordinator" in result.stderr) == (2, True)
    assert run(role, "--coordinator", "somewhere").exit_code == 2


@pytest.mark.parametrize(("options", "wanted"), [([], None), (["--threads", "4"], 4)])
def test_a_server_has_as_many_threads_as_it_is_given(
    options: list[str], wanted: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path))
    monkeypatch.setattr("embedding_tier.__main__.run", lambda **fields: started.append(fields))
    assert run("server", "--coordinator", "host:1", *options).exit_code == 0
    assert started[0]["num_threads"] == wanted
    assert run("server", "--coordinator", "host:1", "--threads", "0").exit_code == 2


def test_data_prints_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("geartrain.data.datasets.fetch", lambda name, directory: {"train": directory / name / "t.csv"})
    result = run("data", "adult", "--directory", str(tmp_path))
    assert result.stdout == f"{tmp_path}/adult/t.csv\n"
    expected = f"examples/fetched_adult_wide_deep.yaml reads them: export GEARTRAIN_DATA={tmp_path}\n"
    assert result.stderr == expected


def test_data_without_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, directory: Path) -> None:
        raise DownloadError("no network", name=name)

    monkeypatch.setattr("geartrain.data.datasets.fetch", fetch)
    result = run("data", "adult")
    assert (result.exit_code, result.stderr) == (1, "error: no network\n")


def test_bench_runs_the_module_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def main(json: bool, quick: bool) -> int:
            return (3 if json else 4) + 10 * quick

    monkeypatch.setattr(tools, "benchmark_names", lambda: ["end-to-end", "tier"])
    imported: list[str] = []
    monkeypatch.setattr(tools.importlib, "import_module", lambda name: imported.append(name) or Module)
    assert run("bench", "end-to-end", "--json").exit_code == 3
    assert run("bench", "end-to-end", "--quick").exit_code == 14
    assert imported == ["benchmarks.end_to_end"] * 2
    result = run("bench", "warp")
    assert (result.exit_code, "one of end-to-end, tier" in result.stderr) == (2, True)


def test_help_lists_only_what_is_there() -> None:
    listed = run("--help").stdout
    for name in ("train", "evaluate", "predict", "up", "down", "submit", "simulate", "doctor", "bench", "data"):
        assert f"\n  {name} " in listed
    for later in ("drain", "export"):
        assert later not in listed


def test_the_last_words_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "w0.log"
    assert last_line(log) == ""
    log.write_text("")
    assert last_line(log) == ""
    log.write_text("x" * 20000 + "\nerror: no \N{SNOWMAN} left\n\n  \n")
    assert last_line(log) == "no \N{SNOWMAN} left"
    log.write_bytes(b"\xff\xfe broken")
    assert last_line(log).endswith("broken")


def test_the_cluster_token_is_made_once_and_private(tmp_path: Path) -> None:
    environment = {"GEARTRAIN_HOME": str(tmp_path / "home")}
    token = cluster_token(environment)
    assert len(token) == 32
    assert cluster_token(environment) == token
    (file,) = (tmp_path / "home").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert cluster_token({**environment, "GEARTRAIN_CLUSTER_TOKEN": "given"}) == "given"


def test_a_home_that_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.write_text("")
    monkeypatch.setenv("GEARTRAIN_HOME", str(home))
    result = CliRunner().invoke(command, ["down"])
    assert result.exit_code == 2
    assert result.stderr == f"error: GEARTRAIN_HOME: expected a folder that can be written, got {home} (file exists)\n"


def test_what_the_operating_system_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(coordinator: str) -> None:
        raise OSError(28, "No space left on device", "/data")

    monkeypatch.setattr(jobs, "client_of", fail)
    result = CliRunner().invoke(command, ["jobs"])
    assert (result.exit_code, result.stderr) == (1, "error: [Errno 28] No space left on device: '/data'\n")
