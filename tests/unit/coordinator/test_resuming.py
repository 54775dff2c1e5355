"""What a run that is resumed may change, and what it may not: each field is one or the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from checkpoint_folders import dense_files, rows_file
from pydantic import BaseModel
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator.checkpoints import Manifest
from coordinator.plan import Task
from coordinator.restoring import check_restorable
from coordinator.resuming import MAY_CHANGE, check_resumable, fixed_settings
from geartrain.config import JobConfig
from geartrain.config.overrides import apply_override
from geartrain.errors import CheckpointError

PLACE = Path("/out/checkpoints/pass-2")
TRAINED: dict[str, Any] = {
    "training": {
        "passes": 2,
        "batch_size": 8,
        "dense_optimizer": {"type": "adam", "lr": 0.01},
        "sparse_optimizer": {"type": "adam", "lr": 0.01},
    },
}


def config_of(*overrides: str) -> JobConfig:
    fields = job_config(**TRAINED).to_dict()
    for override in overrides:
        apply_override(fields, override)
    return JobConfig.from_resolved(fields)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    """That of a run of two passes."""
    nodes = ScriptedNodes()
    nodes.submit(config_of(), data_index())
    nodes.run()
    return msgspec.convert(nodes.cuts[-1].manifest, Manifest)


def refused(manifest: Manifest, *overrides: str) -> CheckpointError:
    with pytest.raises(CheckpointError, match="cannot be resumed") as caught:
        check_resumable(PLACE, manifest, JobConfig.from_resolved(manifest.config), config_of(*overrides))
    assert caught.value.facts["file"] == str(PLACE / "manifest.json")
    return caught.value


@pytest.mark.parametrize(
    ("override", "field", "theirs", "ours"),
    [
        ("training.seed=7", "training.seed", 1, 7),
        ("training.batch_size=16", "training.batch_size", 8, 16),
        ("data.shuffle=false", "data.shuffle", True, False),
        ("training.dense_optimizer.beta1=0.5", "training.dense_optimizer.beta1", 0.9, 0.5),
        ("training.dense_optimizer={type: sgd, lr: 0.01}", "training.dense_optimizer.type", "adam", "sgd"),
        ("training.sparse_optimizer.l2=0.5", "tables.user.optimizer.l2", 0.0, 0.5),
        ("tables={default: {optimizer: {type: sgd, lr: 0.01}}}", "tables.user.optimizer.type", "adam", "sgd"),
        ("tables={user: {initializer: {type: zero}}}", "tables.user.initializer.type", "uniform", "zero"),
        ("tables={user: {initializer: {type: uniform, range: 0.5}}}", "tables.user.initializer.range", 0.01, 0.5),
        ("tables={user: {admission: {type: count, n: 2}}}", "tables.user.admission.type", "always", "count"),
        ("tables={user: {expiry: {type: unseen, passes: 2}}}", "tables.user.expiry.type", "never", "unseen"),
        ("tables={default: {max_rows: 100000}}", "tables.user.max_rows", None, 100000),
        ("tables={user: {max_rows: 100000}}", "tables.user.max_rows", None, 100000),
        ("tables={user: {row_dtype: bf16}}", "tables.user.row_dtype", "fp32", "bf16"),
        ("model.dropout=0.5", "model.dropout", 0.0, 0.5),
        ("training.passes=1", "training.passes", "at least 2", 1),
    ],
)
def test_what_decides_about_steps_stays(
    manifest: Manifest, override: str, field: str, theirs: object, ours: object
) -> None:
    facts = refused(manifest, override).facts
    assert (facts["field"], facts["expected"], facts["value"]) == (field, theirs, ours)


@pytest.mark.parametrize(
    "override",
    [
        "name=other",
        "training.passes=2",
        "training.passes=9",
        "training.early_stopping={metric: logloss, patience: 3}",
        "training.lr_schedule={type: cosine}",
        "training.dense_optimizer.lr=0.5",
        "training.sparse_optimizer.lr=0.5",
        "tables={user: {lr: 0.5}}",
        "training.max_skipped_steps=5",
        "training.precision=fp32",
        "heterogeneous=false",
        "sync.mode=async",
        "compression.embedding=bf16",
        "portrait.num_probes=30",
        "checkpoint.keep=9",
        "data.train=[tomorrow.csv]",
        "data.root=/elsewhere",
        # The same settings, said in another way.
        "tables={user: {row_dtype: fp32, initializer: {type: uniform}}}",
        "tables={user: {optimizer: {type: adam, lr: 0.02}}}",
    ],
)
def test_speed_scale_and_length_may_change(manifest: Manifest, override: str) -> None:
    check_resumable(PLACE, manifest, JobConfig.from_resolved(manifest.config), config_of(override))


def test_a_run_that_begins_with_the_parameters_may_change_more(manifest: Manifest, tmp_path: Path) -> None:
    """What is refused is refused for `resume` alone; init-from cares for what parameters mean."""
    rows = {f"{server}.rows": rows_file(server, "user", optimizer="adam", dim=3) for server in manifest.servers}
    dense = {name: about for server in manifest.servers for name, about in dense_files(server, 0, 0).items()}
    whole = msgspec.structs.replace(manifest, files={**rows, **dense})
    other = config_of("training.seed=7", "training.passes=1", "tables={user: {initializer: {type: zero}}}")
    check_restorable(tmp_path, whole, other, resumes=False)
    with pytest.raises(CheckpointError, match=r"cannot be resumed: training\.seed is 1 there and 7"):
        check_restorable(tmp_path, whole, other, resumes=True)
    check_restorable(tmp_path, whole, config_of(), resumes=True)


def paths_of(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every field of the config with its path; of unions, the fields of each member."""
    for name, field in model.model_fields.items():
        below = f"{path}{name}"
        sections = [one for one in models_in(field.annotation) if one is not model]
        yield below
        for section in sections:
            yield from paths_of(section, f"{below}.")


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for one in get_args(annotation) for model in models_in(one)]


def test_every_field_that_may_change_is_one_of_the_config() -> None:
    known = set(paths_of(JobConfig))
    for pattern in MAY_CHANGE:
        plain = pattern.replace(".*.", ".").removesuffix(".*").removesuffix("*")
        assert plain in known, pattern


def test_no_field_is_forgotten() -> None:
    """A field that is new must be kept, unless it is named as one that may change."""
    fixed = {path.split(".")[0] for path in fixed_settings(config_of())}
    assert fixed == {"features", "data", "model", "training", "tables"}
    assert {path for path in fixed_settings(config_of()) if path.startswith("data.")} == {"data.shuffle"}


@pytest.mark.parametrize(("metric", "state"), [("auc", [0.25, 0.1]), ("logloss", [0.25, 0.8])])
def test_a_schedule_does_not_compare_values_of_two_metrics(metric: str, state: list[float]) -> None:
    """An auc of 0.1 is worse than a logloss of 0.8, which says nothing: it is the first auc."""

    def plateau(metric: str) -> str:
        return f"training.lr_schedule={{type: plateau, metric: {metric}, factor: 0.5}}"

    first, again = ScriptedNodes(), ScriptedNodes()
    first.submit(config_of(plateau("logloss")), data_index())
    first.run()
    told = msgspec.convert(first.cuts[-1].manifest, Manifest)
    told = msgspec.structs.replace(told, schedule={**told.schedule, "best": 0.8, "factor": 0.25})
    again.aucs = [0.1]
    again.submit(
        config_of(plateau(metric), "training.passes=3"), data_index(), Task("train", "/out/cut", "resume"), told
    )
    again.run()
    schedule = again.cuts[-1].manifest["schedule"]
    assert [schedule["factor"], schedule["best"]] == state


def test_a_run_without_a_pass_left_says_so(manifest: Manifest) -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(config_of(), data_index(), Task("train", "/out/cut", "resume"), manifest)
    nodes.run()
    assert nodes.core.state_of(job)[0] == "succeeded"
    record = nodes.core.record(job)
    assert record is not None
    assert any("all 2 passes were done before" in message for _, kind, message in record.events if kind == "pass")
