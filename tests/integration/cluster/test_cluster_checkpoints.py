"""Checkpoints: a cut per pass, kept or pruned, resumed bit for bit, begun from, evaluated, predicted with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from checkpoint_content import content, manifest
from cluster_support import Commands, job_fields, write_job
from standing_cluster import Standing

from geartrain.checkpoint_layout import write_manifest

FOUR = {"passes": 4, "batch_size": 128, "lr_schedule": {"type": "plateau", "factor": 0.5, "patience": 1}}


@pytest.fixture(scope="module")
def trained(standing: Standing) -> dict[str, Any]:
    """The result of four passes in one go; all of its cuts are kept."""
    return standing.run(name="trained", training=FOUR, checkpoint={"keep": 10})


def cut(result: dict[str, Any], number: int) -> Path:
    """The cut at the end of a pass (from 1)."""
    return Path(result["checkpoint"]).parent / f"pass-{number:04d}-version-{16 * number:08d}"


def test_a_cut_per_pass_and_nothing_else(trained: dict[str, Any]) -> None:
    assert Path(trained["checkpoint"]) == cut(trained, 4)
    assert sorted(cut(trained, 4).parent.iterdir()) == [cut(trained, number) for number in (1, 2, 3, 4)]
    for number in (1, 2, 3, 4):
        told = manifest(cut(trained, number))
        assert (told["version"], told["passes_done"], told["samples"]) == (16 * number, number, 2000 * number)
    assert content(cut(trained, 3)) != content(cut(trained, 4))


def test_only_the_newest_are_kept(standing: Standing) -> None:
    result = standing.run(name="pruned", training=FOUR, checkpoint={"keep": 2, "directory": "cuts"})
    assert Path(result["checkpoint"]).parent.name == "cuts"
    assert sorted(Path(result["checkpoint"]).parent.iterdir()) == [cut(result, 3), cut(result, 4)]


def test_a_resumed_run_equals_one_in_one_go(standing: Standing, trained: dict[str, Any], commands: Commands) -> None:
    """Two passes by one cluster, two more by another one: every bit of the four passes of a third."""
    config = write_job(standing.data, "resume.json", name="trained", training=FOUR)
    first = commands.run("train", str(config), "--output=first", "--set=training.passes=2", "--json").json
    assert content(first["checkpoint"]) == content(cut(trained, 2))
    second = commands.run("train", str(config), "--output=second", "--resume", first["checkpoint"], "--json").json
    assert content(second["checkpoint"]) == content(trained["checkpoint"])
    for fact in ("passes", "samples", "version", "valid", "test", "best_pass", "best_version"):
        assert second[fact] == trained[fact], fact
    assert second["train_seconds"] > first["train_seconds"]
    assert len(list((commands.folder / "second" / "checkpoints").iterdir())) == 2
    assert manifest(second["checkpoint"])["schedule"] == manifest(trained["checkpoint"])["schedule"]


def test_resuming_a_finished_run_evaluates_it(standing: Standing, trained: dict[str, Any]) -> None:
    task = {"kind": "train", "init": "resume", "checkpoint": trained["checkpoint"]}
    again = standing.run(task, name="trained", training=FOUR)
    for fact in ("passes", "samples", "version", "valid", "test", "best_pass", "best_version", "checkpoint"):
        assert again[fact] == trained[fact], fact


def test_beginning_from_a_checkpoint(standing: Standing, trained: dict[str, Any]) -> None:
    """Its parameters, but nothing else: counters, optimizers' states and the schedule start anew."""
    task = {"kind": "train", "init": "init_from", "checkpoint": trained["checkpoint"]}
    one_pass = {"passes": 1, "batch_size": 128, "sparse_optimizer": {"type": "sgd", "lr": 0.0001}}
    begun = standing.run(task, name="begun", training={**one_pass, "dense_optimizer": {"type": "sgd", "lr": 0.0001}})
    assert (begun["passes"], begun["samples"], begun["version"]) == (1, 2000, 16)
    # Such small steps leave the model as it was; from scratch they leave it at .5.
    assert begun["valid"]["auc"] == pytest.approx(trained["valid"]["auc"], abs=0.01)
    assert begun["valid"] != trained["valid"]


def test_evaluate_and_predict(standing: Standing, trained: dict[str, Any], commands: Commands) -> None:
    checkpoint = trained["checkpoint"]
    told = commands.run("evaluate", checkpoint, "--json", "--server-num=1")
    assert (told.status, told.stderr) == (0, "")
    assert told.json["test"] == trained["test"]
    assert (told.json["best_pass"], told.json["best_version"]) == (4, 64)

    # The same rows without a label, in two files.
    rows = [line.partition(",")[2] for line in (standing.data / "test.csv").read_text().splitlines()]
    (commands.folder / "in-1.csv").write_text("\n".join(rows[:301]) + "\n")
    (commands.folder / "in-2.csv").write_text("\n".join([rows[0], *rows[301:]]) + "\n")
    files = ["--input", "in-*.csv", "--out", "scores.csv"]
    done = commands.run("predict", checkpoint, *files, "--json", "--worker-num=1", "--server-num=3")
    assert (done.status, done.stderr) == (0, "")
    assert (done.json["num_predictions"], done.json["predictions"]) == (500, str(commands.folder / "scores.csv"))
    title, *lines = (commands.folder / "scores.csv").read_text().splitlines()
    assert title == "score"
    scores = np.array([float(line) for line in lines])
    labels = np.array([line[0] == "1" for line in (standing.data / "test.csv").read_text().splitlines()[1:]])
    # In the input's order: the pairs that they rank rightly are those that the evaluation found.
    ahead = np.sign(scores[labels][:, None] - scores[~labels][None, :])
    assert (1 + ahead.mean()) / 2 == pytest.approx(trained["test"]["auc"], abs=1e-9)
    logloss = -np.where(labels, np.log(scores), np.log1p(-scores)).mean()
    assert logloss == pytest.approx(trained["test"]["logloss"], abs=1e-6)
    assert {entry.name for entry in commands.folder.iterdir()} == {"in-1.csv", "in-2.csv", "scores.csv"}


@pytest.fixture(scope="module")
def deltas(standing: Standing) -> dict[str, Any]:
    """The same four passes; the second and third cut are deltas on the first."""
    return standing.run(name="trained", training=FOUR, checkpoint={"keep": 10, "full_every": 3})


def test_deltas_are_written_and_change_nothing_else(trained: dict[str, Any], deltas: dict[str, Any]) -> None:
    told = [manifest(cut(deltas, number)) for number in (1, 2, 3, 4)]
    bases = [one["base"] and one["base"]["checkpoint"] for one in told]
    assert bases == [None, cut(deltas, 1).name, cut(deltas, 1).name, None]
    kinds = [{about["kind"] for about in one["files"].values() if about["part"] == "rows"} for one in told]
    assert kinds == [{"full"}, {"delta"}, {"delta"}, {"full"}]
    for number in (1, 4):
        assert content(cut(deltas, number)) == content(cut(trained, number))
    for fact in ("valid", "test", "version", "samples"):
        assert deltas[fact] == trained[fact], fact


def test_a_delta_is_as_good_as_a_full_checkpoint(
    standing: Standing, trained: dict[str, Any], deltas: dict[str, Any]
) -> None:
    """Evaluated, predicted with and begun from."""

    def uses(checkpoint: Path) -> list[Any]:
        same = {"name": "trained", "training": FOUR}
        evaluated = standing.run({"kind": "evaluate", "checkpoint": str(checkpoint)}, **same)
        predicted = standing.run({"kind": "predict", "checkpoint": str(checkpoint)}, **same)
        task = {"kind": "train", "init": "init_from", "checkpoint": str(checkpoint)}
        begun = standing.run(task, name="begun", training={**FOUR, "passes": 1})
        return [evaluated["test"], Path(predicted["predictions"]).read_text(), begun["test"]]

    assert uses(cut(deltas, 3)) == uses(cut(trained, 3))


def test_a_run_resumed_from_a_delta_equals_one_in_one_go(
    standing: Standing, trained: dict[str, Any], deltas: dict[str, Any], commands: Commands
) -> None:
    config = write_job(standing.data, "resume-delta.json", name="trained", training=FOUR)
    resumed = commands.run(
        "train", str(config), "--output=out", "--resume", str(cut(deltas, 2)), "--server-num=3", "--json"
    ).json
    for fact in ("passes", "samples", "version", "valid", "test"):
        assert resumed[fact] == trained[fact], fact
    scores = commands.run("evaluate", resumed["checkpoint"], "--json", "--server-num=1").json
    assert scores["test"] == trained["test"]

    moved = commands.folder / "moved" / cut(deltas, 2).name
    shutil.copytree(cut(deltas, 2), moved)
    for arguments in (["evaluate", str(moved)], ["train", str(config), "--output=o", "--resume", str(moved)]):
        done = commands.run(*arguments)
        assert (done.status, done.stdout) == (2, "")
        assert f"{moved} is a delta on '{cut(deltas, 1).name}', which was expected beside it" in done.error_line


def test_the_best_pass_may_be_a_delta(standing: Standing) -> None:
    """What it builds on is kept with it."""
    early = standing.run(name="best", training=OVERSHOOTING, checkpoint={"keep": 1, "full_every": 100})
    best = early["best_pass"]
    there = {cut(early, number) for number in (1, best, early["passes"])}
    assert set(Path(early["checkpoint"]).parent.iterdir()) == there
    whole = standing.run(name="best", training=OVERSHOOTING, checkpoint={"keep": 1})
    for fact in ("best_pass", "best_version", "passes", "valid", "test"):
        assert early[fact] == whole[fact], fact


def test_evaluation_leaves_no_trace(standing: Standing, trained: dict[str, Any]) -> None:
    """Unseen ids are scored; asked again, the same comes out."""
    title, *rows = (standing.data / "valid.csv").read_text().splitlines()[:51]
    unseen = [row.replace(",u", ",unseen-").replace(",i", ",unseen-") for row in rows]
    (standing.data / "unseen.csv").write_text("\n".join([title, *unseen]) + "\n")
    task = {"kind": "evaluate", "checkpoint": trained["checkpoint"], "split": "test"}
    results = [
        standing.run(task, name="trained", training=FOUR, data={"test": [file]})["test"]
        for file in ("test.csv", "unseen.csv", "test.csv", "unseen.csv")
    ]
    assert results[0] == results[2] == trained["test"]
    assert results[1] == results[3]
    assert results[1]["num_samples"] == 50


Damage = Callable[[Path], object]


def any_file(checkpoint: Path, pattern: str) -> Path:
    return sorted(checkpoint.glob(pattern))[0]


def truncate(checkpoint: Path) -> str:
    file = any_file(checkpoint, "table-user.s1.rows")
    file.write_bytes(file.read_bytes()[:-4])
    return file.name


def flip(checkpoint: Path) -> str:
    file = any_file(checkpoint, "dense.s0.npy")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return file.name


def remove(checkpoint: Path) -> str:
    file = any_file(checkpoint, "table-item.s0.rows")
    file.unlink()
    return file.name


def forget_table(checkpoint: Path) -> str:
    told = manifest(checkpoint)
    told["files"] = {name: about for name, about in told["files"].items() if about.get("table") != "item"}
    write_manifest(checkpoint, told)
    return "item"


def forget_rows(checkpoint: Path) -> str:
    told = manifest(checkpoint)
    told["files"] = {name: about for name, about in told["files"].items() if about.get("table") is None}
    write_manifest(checkpoint, told)
    return "table"


def forget_server(checkpoint: Path) -> str:
    """The other one's files make up a smaller checkpoint, which could be loaded."""
    told = manifest(checkpoint)
    told["files"] = {name: about for name, about in told["files"].items() if about["server"] != "s0"}
    write_manifest(checkpoint, told)
    return "files: the rows of server s0 and table "


def say_server_oddly(checkpoint: Path) -> str:
    told = manifest(checkpoint)
    told["files"]["table-item.s0.rows"]["server"] = [1]
    write_manifest(checkpoint, told)
    return 'files["table-item.s0.rows"].server: expected'


def say_dim_oddly(checkpoint: Path) -> str:
    told = manifest(checkpoint)
    told["files"]["table-item.s0.rows"]["dim"] += 1
    write_manifest(checkpoint, told)
    return 'files["table-item.s0.rows"].dim: expected'


def flip_in_manifest(checkpoint: Path) -> str:
    file = checkpoint / "manifest.json"
    file.write_bytes(file.read_bytes().replace(b'"seed": 1', b'"seed": 3'))
    return f"{file.name} is damaged: its own checksum, crc32,"


def cut_manifest(checkpoint: Path) -> str:
    file = checkpoint / "manifest.json"
    file.write_bytes(file.read_bytes()[:-20])
    return file.name


DAMAGES = [
    *(truncate, flip, remove, forget_table, forget_rows, forget_server, say_server_oddly, say_dim_oddly),
    *(flip_in_manifest, cut_manifest),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused(
    standing: Standing, trained: dict[str, Any], commands: Commands, damage: Callable[[Path], str]
) -> None:
    damaged = standing.output / "damaged" / damage.__name__
    shutil.copytree(trained["checkpoint"], damaged)
    named = damage(damaged)
    config = write_job(standing.data, "damaged.json", name="trained", training={**FOUR, "passes": 5})
    done = commands.run("train", str(config), "--output=output", "--resume", str(damaged))
    assert (done.status, done.stdout) == (2, "")
    assert str(damaged) in done.error_line and named in done.error_line
    assert not (commands.folder / "output").exists()

    task = {"kind": "evaluate", "checkpoint": str(damaged)}
    fields = {**job_fields(), "data": {"root": str(standing.data), "train": ["train-0.csv"], "test": ["test.csv"]}}
    answer = httpx.post(f"{standing.url}/v1/jobs", json={"config": fields, "task": task})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "checkpoint_invalid"
    assert str(damaged) in error["file"] and named in error["message"]


OTHER_MODELS: list[tuple[str, list[str], str]] = [
    ("--resume", ["--set=model.hidden=[16]"], "model.hidden"),
    ("--init-from", ["--set=model.type=wide_deep"], "model.type"),
    ("--init-from", ["--set=features.0.table=person"], "features.0.table"),
    ("--init-from", ["--set=tables={item: {row_dtype: bf16}}"], "tables.item.row_dtype"),
]


def refusal(standing: Standing, trained: dict[str, Any], commands: Commands, option: str, settings: list[str]) -> str:
    """What a `train` that must be refused before anything starts says."""
    config = write_job(standing.data, "other.json", name="trained", training=FOUR)
    done = commands.run("train", str(config), "--output=output", option, trained["checkpoint"], *settings)
    assert (done.status, done.stdout) == (2, "")
    assert not (commands.folder / "output").exists()
    assert trained["checkpoint"] in done.error_line
    return done.error_line


@pytest.mark.parametrize(("option", "settings", "field"), OTHER_MODELS)
def test_a_checkpoint_of_another_model_is_refused(
    standing: Standing, trained: dict[str, Any], commands: Commands, option: str, settings: list[str], field: str
) -> None:
    assert f"another model: {field} is" in refusal(standing, trained, commands, option, settings)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.seed=2", "training.seed is 1 there and 2 in the config"),
        ("training.passes=3", "training.passes is 3, and 4 are done"),
    ],
)
def test_what_would_not_go_on_as_it_was_is_not_resumed(
    standing: Standing, trained: dict[str, Any], commands: Commands, setting: str, words: str
) -> None:
    assert f"cannot be resumed: {words}" in refusal(standing, trained, commands, "--resume", [f"--set={setting}"])


OVERSHOOTING = {
    "passes": 30,
    "batch_size": 128,
    "sparse_optimizer": {"type": "adam", "lr": 0.05},
    "dense_optimizer": {"type": "adam", "lr": 0.02},
    "early_stopping": {"metric": "auc", "patience": 2},
}


def test_early_stopping_comes_back_to_the_best_pass(standing: Standing) -> None:
    """Rates that are far too high: the model gets worse, and nothing of the later passes is left in the result."""
    result = standing.run(name="stopped", training=OVERSHOOTING, checkpoint={"keep": 1}, data={"group_by": "user"})
    best = result["best_pass"]
    assert result["passes"] == best + 2 < 30
    assert (result["best_version"], result["version"]) == (16 * best, 16 * (best + 2))
    assert result["samples"] == 2000 * (best + 2)
    checkpoint = cut(result, best)
    assert result["checkpoint"] == str(checkpoint)
    # The best is kept beside the newest.
    assert sorted(checkpoint.parent.iterdir()) == [checkpoint, cut(result, best + 2)]
    assert manifest(checkpoint)["metrics"] == result["valid"]
    assert manifest(cut(result, best + 2))["metrics"]["auc"] < result["valid"]["auc"]

    def evaluated(directory: Path) -> Any:
        task = {"kind": "evaluate", "checkpoint": str(directory)}
        return standing.run(task, training=OVERSHOOTING, data={"group_by": "user"})["test"]

    assert evaluated(checkpoint) == result["test"] != evaluated(cut(result, best + 2))
    assert 0 < result["test"]["gauc"] <= 1
    assert 0 < result["valid"]["gauc"] <= 1


def test_a_resumed_run_remembers_its_best_pass(standing: Standing) -> None:
    """Stopped after the best pass was over: a resumed run does not take a worse one for better."""
    stopping = {"early_stopping": {"metric": "auc", "patience": 3}}
    whole = standing.run(name="remembers", training={**OVERSHOOTING, **stopping})
    best = whole["best_pass"]
    half = standing.run(name="remembers", training={**OVERSHOOTING, "passes": best + 1})
    assert (half["best_pass"], half["passes"]) == (best, best + 1)
    task = {"kind": "train", "init": "resume", "checkpoint": str(cut(half, best + 1))}
    resumed = standing.run(task, name="remembers", training={**OVERSHOOTING, **stopping})
    assert (resumed["best_pass"], resumed["passes"]) == (best, whole["passes"])
    assert (resumed["valid"], resumed["test"]) == (whole["valid"], whole["test"])
    assert resumed["checkpoint"] == half["checkpoint"]

    lonely = standing.output / "lonely"
    shutil.copytree(cut(half, best + 1), lonely)
    fields = job_fields(training=OVERSHOOTING)
    fields["data"] = {"root": str(standing.data), **fields["data"]}
    task = {"kind": "train", "init": "resume", "checkpoint": str(lonely)}
    answer = httpx.post(f"{standing.url}/v1/jobs", json={"config": fields, "task": task})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "best")
