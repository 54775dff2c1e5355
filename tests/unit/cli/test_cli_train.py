"""What `train`, `evaluate` and `predict` hand to the cluster, and what they show of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cli_files import write_job
from click.testing import CliRunner, Result

from geartrain.cli import command
from geartrain.errors import RoleDiedError
from geartrain.launch.local import ClusterSpec

RESULT: dict[str, Any] = {
    "job": "tiny-1",
    "state": "succeeded",
    "passes": 3,
    "samples": 9,
    "version": 6,
    "train_seconds": 0.5,
    "samples_per_s": 18.0,
    "valid": {"auc": 0.75, "logloss": 0.6, "num_samples": 3},
    "test": {"auc": None, "auc_reason": "only one class", "logloss": 0.5, "num_samples": 3},
    "workers": [],
    "checkpoint": "runs/tiny/checkpoints/pass-3",
}


class StandIn:
    """In place of `LocalCluster`: notes what it is asked and answers with `ended`, or raises it."""

    ended: Any = None
    spec: ClusterSpec
    config: Mapping[str, Any]
    task: Mapping[str, str]
    killed = False

    def __init__(self, spec: ClusterSpec) -> None:
        StandIn.spec = spec

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run_job(self, config: Mapping[str, Any], task: Mapping[str, str], observe: Callable[[Any], None]) -> Any:
        StandIn.config, StandIn.task = config, task
        observe({"state": "training", "progress": {"pass_index": 0, "passes": 3, "samples": 0, "num_rows": 3}})
        if isinstance(StandIn.ended, Exception):
            raise StandIn.ended
        return StandIn.ended

    def stop(self, *, at_once: bool) -> None:
        StandIn.killed = at_once


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("geartrain.launch.local.LocalCluster", StandIn)
    monkeypatch.setattr(StandIn, "ended", {"id": "tiny-1", "state": "succeeded", "result": RESULT})
    monkeypatch.setattr(StandIn, "killed", False)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_options_reach_the_cluster_and_the_config(tmp_path: Path) -> None:
    options = [
        "--server_num=3",
        "--worker_num",
        "1",
        "--sync_mode",
        "async",
        "--sync-group-size",
        "1",
        "--output",
        "here",
    ]
    result = run("train", str(write_job(tmp_path)), *options, "--no-heterogeneous", "--set", "training.seed=7")
    assert result.exit_code == 0, result.output
    assert (StandIn.spec.num_servers, StandIn.spec.devices) == (3, ("cpu",))
    assert StandIn.spec.output_dir == tmp_path / "here"
    assert StandIn.spec.logs_dir == tmp_path / "here" / "logs"
    assert StandIn.spec.allowed_roots == (tmp_path,)
    assert StandIn.config["sync"]["mode"] == "async"
    assert StandIn.config["sync"]["group_size"] == 1
    assert StandIn.config["heterogeneous"] is False
    assert StandIn.config["training"]["seed"] == 7
    assert StandIn.config["data"]["root"] == str(tmp_path)
    assert StandIn.task == {"kind": "train"}


def test_what_is_not_given_stays_as_the_config_says(tmp_path: Path) -> None:
    config = write_job(tmp_path, sync={"mode": "sync", "group_size": 1}, heterogeneous=False)
    assert run("train", str(config)).exit_code == 0
    assert (StandIn.config["sync"]["mode"], StandIn.config["sync"]["group_size"]) == ("sync", 1)
    assert StandIn.config["heterogeneous"] is False
    assert (StandIn.spec.num_servers, StandIn.spec.devices) == (2, ("cpu", "cpu"))
    assert StandIn.spec.output_dir is not None and StandIn.spec.output_dir.parent == tmp_path / "runs"


def test_one_worker_for_each_device(tmp_path: Path) -> None:
    assert run("train", str(write_job(tmp_path)), *["--device", "cpu"] * 3).exit_code == 0
    assert StandIn.spec.devices == ("cpu", "cpu", "cpu")


def test_json_is_the_last_line(tmp_path: Path) -> None:
    result = run("train", str(write_job(tmp_path)), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[-1]) == RESULT
    assert result.stdout.splitlines()[0].startswith("training: pass 1 of 3")
    assert result.stderr == ""


def test_the_report_is_printed_without_json(tmp_path: Path) -> None:
    result = run("train", str(write_job(tmp_path)))
    assert "0.75000" in result.stdout
    assert "none (only one class)" in result.stdout
    assert "18 samples/s" in result.stdout


def test_a_failed_job_is_one_line_and_status_1(tmp_path: Path) -> None:
    message = "train.csv, row 2, column price: expected a number, got 'x'"
    # What would have been status 2 at the start is status 1 once the job runs.
    error = {"code": "data_file_invalid", "message": message}
    StandIn.ended = {"id": "tiny-1", "state": "failed", "reason": "a worker failed", "error": error, "result": None}
    result = run("train", str(write_job(tmp_path)), "--json")
    assert (result.exit_code, result.stderr) == (1, f"error: {message}\n")
    told = json.loads(result.stdout.splitlines()[-1])
    assert (told["job"], told["state"], told["error"]) == ("tiny-1", "failed", error)
    assert StandIn.killed


def test_a_cancelled_job_is_no_success(tmp_path: Path) -> None:
    StandIn.ended = {"id": "tiny-1", "state": "cancelled", "reason": "by a user", "error": None, "result": None}
    result = run("train", str(write_job(tmp_path)))
    assert (result.exit_code, result.stderr) == (1, "error: job tiny-1 was cancelled: by a user\n")


def test_a_dead_role_is_one_line_and_status_1(tmp_path: Path) -> None:
    StandIn.ended = RoleDiedError("server s1 was killed (SIGKILL)", role="s1", status=-9)
    result = run("train", str(write_job(tmp_path)))
    assert (result.exit_code, result.stderr) == (1, "error: server s1 was killed (SIGKILL)\n")


def test_an_error_of_several_lines_becomes_one(tmp_path: Path) -> None:
    StandIn.ended = RoleDiedError("worker w0 exited\n  with status 3", role="w0", status=3)
    assert run("train", str(write_job(tmp_path))).stderr == "error: worker w0 exited with status 3\n"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint folder as far as commands look into it: the manifest."""
    from coordinator.checkpoints import FORMAT
    from geartrain.checkpoint_layout import write_manifest
    from geartrain.config import load_config

    folder = tmp_path / "checkpoints" / "pass-3"
    folder.mkdir(parents=True)
    config = load_config(write_job(tmp_path))
    written = {"bytes": 0, "crc32": 0, "server": "s0", "version": 6}
    dense = {**written, "start": 0, "stop": 0, "optimizer": config.training.dense_optimizer.type}
    rows = {
        "part": "rows",
        "num_rows": 0,
        "num_deleted": 0,
        "state_width": 0,
        "sketch_bytes": 0,
        "kind": "full",
        "base": None,
    }
    files = {
        table.name: {
            **written,
            **rows,
            "table": table.name,
            "dim": table.dim,
            "row_dtype": table.row_dtype,
            "optimizer": table.optimizer["type"],
        }
        for table in config.table_specs()
    } | {part: {**dense, "part": part} for part in ("dense", "dense_states")}
    manifest = {
        "format": FORMAT,
        "job": "tiny-1",
        "config": config.to_dict(),
        "version": 6,
        "term": 1,
        "passes_done": 3,
        "samples": 9,
        "train_seconds": 0.5,
        "schedule": {},
        "metrics": {},
        "best": {"pass_index": 2, "version": 6, "metrics": {}, "value": None, "without_gain": 0},
        "index": {"standard": {}, "key_kinds": {}},
        "segments": [],
        "dense_optimizer": config.training.dense_optimizer.model_dump(mode="json"),
        "servers": ["s0"],
        "files": files,
        "pass_versions": [0, 2, 4],
    }
    for name in files:
        (folder / name).touch()
    write_manifest(folder, manifest)
    return folder


@pytest.mark.parametrize(("option", "kind"), [("--resume", "resume"), ("--init-from", "init_from")])
def test_training_starts_from_a_checkpoint(tmp_path: Path, checkpoint: Path, option: str, kind: str) -> None:
    longer = "--set=training.passes=5"
    assert run("train", str(write_job(tmp_path)), option, "checkpoints/pass-3", longer).exit_code == 0
    assert StandIn.task == {"kind": "train", "init": kind, "checkpoint": str(checkpoint)}
    assert checkpoint in StandIn.spec.allowed_roots


def test_evaluate_needs_no_config(tmp_path: Path, checkpoint: Path) -> None:
    result = run("evaluate", str(checkpoint), "--split", "valid", "--worker-num", "1")
    assert result.exit_code == 0, result.output
    assert StandIn.task == {"kind": "evaluate", "checkpoint": str(checkpoint), "split": "valid"}
    assert StandIn.config["data"]["root"] == str(tmp_path)
    assert StandIn.spec.logs_dir is None


@pytest.mark.parametrize(
    ("field", "value"), [("server", [1]), ("server", "s1"), ("dim", 99), ("version", 61), ("kind", "delta")]
)
@pytest.mark.parametrize("command", ["evaluate", "predict", "train"])
def test_an_odd_manifest_is_refused_before_anything_starts(
    tmp_path: Path, checkpoint: Path, command: str, field: str, value: Any
) -> None:
    from geartrain.checkpoint_layout import write_manifest

    told = json.loads((checkpoint / "manifest.json").read_text())
    del told["crc32"]
    told["files"]["user"][field] = value
    write_manifest(checkpoint, told)
    options = {
        "evaluate": ["evaluate", str(checkpoint)],
        "predict": ["predict", str(checkpoint), "--input", "*.csv", "--out", "scores.csv"],
        "train": ["train", str(write_job(tmp_path)), "--resume", str(checkpoint)],
    }
    StandIn.task = {}
    result = run(*options[command])
    assert (result.exit_code, StandIn.task) == (2, {})
    assert f"{checkpoint}/manifest.json is damaged: " in result.stderr


def test_evaluate_with_another_config(tmp_path: Path, checkpoint: Path) -> None:
    config = write_job(tmp_path, name="other")
    assert run("evaluate", str(checkpoint), "--config", str(config), "--set", "data.test=[valid.csv]").exit_code == 0
    assert StandIn.config["name"] == "other"
    assert StandIn.config["data"]["test"] == ["valid.csv"]


def test_evaluate_of_a_split_without_files_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    config = write_job(tmp_path, data={"train": ["train.csv"]})
    result = run("evaluate", str(checkpoint), "--config", str(config))
    assert (result.exit_code, "data.test" in result.stderr) == (2, True)


def test_predict_reads_files_without_labels_and_names_the_output(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a-1.csv").write_text("user,price\na,1\n")
    predictions = tmp_path / "tiny-1-predictions.csv"
    predictions.write_text("score\n0.5\n")
    done = {"job": "tiny-1", "state": "succeeded", "predictions": str(predictions), "num_predictions": 1}
    StandIn.ended = {"id": "tiny-1", "state": "succeeded", "result": done}
    result = run("predict", str(checkpoint), "--input", "new/a-*.csv", "--out", "scores.csv", "--json")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "scores.csv").read_text() == "score\n0.5\n"
    assert not predictions.exists()
    assert json.loads(result.stdout.splitlines()[-1])["predictions"] == str(tmp_path / "scores.csv")
    assert StandIn.task == {"kind": "predict", "checkpoint": str(checkpoint)}
    data = StandIn.config["data"]
    assert (data["root"], data["test"]) == (str(tmp_path / "new"), ["a-*.csv"])


def test_predict_without_a_matching_file_is_refused(checkpoint: Path) -> None:
    result = run("predict", str(checkpoint), "--input", "new/*.csv", "--out", "scores.csv")
    assert result.exit_code == 2
    assert "*.csv" in result.stderr


def test_predict_into_a_folder_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    result = run("predict", str(checkpoint), "--input", "train.csv", "--out", str(tmp_path))
    assert (result.exit_code, result.stderr.startswith("error: --out: expected a file")) == (2, True)


def test_a_precision_that_an_emulated_card_lacks_is_said_before_anything_starts(tmp_path: Path) -> None:
    devices = ["--device", "emulate:samples_per_s=10,precisions=fp32+bf16", "--device", "emulate:samples_per_s=5"]
    result = run("train", str(write_job(tmp_path)), *devices, "--set", "training.precision=bf16")
    assert result.exit_code == 2
    assert "training.precision: worker w1 on emulate:samples_per_s=5 cannot compute in bf16" in result.output
