"""The files of a checkpoint are of the model that its own config describes, or it is refused before roles start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from checkpoint_folders import dense_files, manifest, rows_file
from scripted_nodes import job_config

from coordinator.checkpoints import Manifest
from coordinator.restoring import check_restorable, trained_config
from geartrain.config import JobConfig
from geartrain.errors import CheckpointError

PLACE = Path("/out/checkpoints/pass-1")


def config() -> JobConfig:
    features = [{"name": name, "kind": "categorical"} for name in ("user", "item")]
    return job_config(features=features)


def whole(**changes: Any) -> Manifest:
    """That of two servers, of which the second has nothing of the dense vector."""
    servers, files = ("s0", "s1"), {}
    for spec in config().table_specs():
        for server in servers:
            about = {"dim": spec.dim, "optimizer": spec.optimizer["type"], "row_dtype": spec.row_dtype}
            files[f"{spec.name}.{server}"] = rows_file(server, spec.name, **about)
    files |= dense_files("s0", 0, 10) | dense_files("s1", 10, 10)
    optimizer = config().training.dense_optimizer.model_dump(mode="json")
    fields = manifest(config=config().to_dict(), servers=list(servers), files=files, dense_optimizer=optimizer)
    return msgspec.convert({**fields, **changes}, Manifest)


def refused(made: Manifest) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        trained_config(PLACE, made)
    with pytest.raises(CheckpointError):
        check_restorable(PLACE, made, config(), resumes=False)
    assert caught.value.facts["file"] == str(PLACE / "manifest.json")
    return caught.value


def test_files_of_the_config_are_accepted() -> None:
    assert trained_config(PLACE, whole()) == config()
    check_restorable(PLACE, whole(), config(), resumes=False)


@pytest.mark.parametrize("table", ["user", "item"])
def test_a_table_that_no_file_has_is_named(table: str) -> None:
    made = whole()
    files = {name: about for name, about in made.files.items() if about.get("table") != table}
    error = refused(msgspec.structs.replace(made, files=files))
    assert f"the rows of server s0 and table {table} are missing" in error.message


@pytest.mark.parametrize(
    ("field", "value"), [("dim", 99), ("row_dtype", "bf16"), ("optimizer", "ftrl"), ("table", "other")]
)
def test_a_file_of_another_model_is_named(field: str, value: Any) -> None:
    made = whole()
    files = {**made.files, "user.s1": {**made.files["user.s1"], field: value}}
    error = refused(msgspec.structs.replace(made, files=files))
    assert error.facts["field"] == f'files["user.s1"].{field}'
    assert str(value) in error.message


def test_another_dense_optimizer_than_the_configs_is_named() -> None:
    made = whole()
    other = {**made.dense_optimizer, "beta1": 0.5}
    assert refused(msgspec.structs.replace(made, dense_optimizer=other)).facts["field"] == "dense_optimizer.beta1"


def test_a_config_that_is_none_is_named() -> None:
    made = whole()
    odd = {**made.config, "training": {**made.config["training"], "batch_size": -1}}
    assert refused(msgspec.structs.replace(made, config=odd)).facts["field"] == "config.training.batch_size"
