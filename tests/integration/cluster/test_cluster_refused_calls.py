"""A job that cannot be right is refused with 422 at once, in one line: where, what was expected, what came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster_support import HEADER, job_fields, write_data
from standing_cluster import Standing

Fields = dict[str, Any]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data outside the roots that the cluster may read."""
    return write_data(tmp_path_factory.mktemp("elsewhere"), num_rows=10)


def refused(standing: Standing, fields: Fields) -> dict[str, Any]:
    """The error that a config is refused with; nothing may be queued by it."""
    known = [job["id"] for job in standing.client.jobs()]
    answer = httpx.post(f"{standing.url}/v1/jobs", json={"config": fields})
    assert answer.status_code == 422, answer.text
    assert [job["id"] for job in standing.client.jobs()] == known
    error = answer.json()["error"]
    assert isinstance(error, dict)
    assert "\n" not in error["message"]
    return error


def in_data(standing: Standing, **sections: Any) -> Fields:
    fields = job_fields(**sections)
    fields["data"] = {"root": str(standing.data), **fields["data"]}
    return fields


CONFIGS: list[tuple[Fields, str, str, str]] = [
    ({"colour": "red"}, "colour", "one of name, features", "unknown field"),
    ({"training": {"speed": 3}}, "training.speed", "one of passes, batch_size", "unknown field"),
    ({"training": {"batch_size": "many"}}, "training.batch_size", "an integer >= 1", '"many"'),
    ({"training": {"batch_size": 0}}, "training.batch_size", "an integer >= 1", "0"),
    ({"model": {"embedding_dim": 0}}, "model.embedding_dim", "an integer >= 1", "0"),
    ({"model": {"type": "transformer"}}, "model.type", "deepfm", '"transformer"'),
    ({"data": {"train": ["gone.csv"]}}, "data.train.0", "a file", "no such file"),
    ({"data": {"train": ["part-*.csv"]}}, "data.train.0", "at least one file", "part-*.csv"),
    ({"data": {"test": ["../elsewhere.csv"]}}, "data.test.0", "a path inside", '"../elsewhere.csv"'),
    ({"data": {"test": ["/etc/passwd"]}}, "data.test.0", "a path inside", '"/etc/passwd"'),
    ({"data": {"root": "/etc"}}, "data.root", "a path inside", '"/etc"'),
]


@pytest.mark.parametrize(("sections", "field", "expected", "got"), CONFIGS)
def test_a_wrong_field(standing: Standing, sections: Fields, field: str, expected: str, got: str) -> None:
    error = refused(standing, in_data(standing, **sections))
    assert error["field"] == field
    assert expected in error["expected"]
    for part in (field, expected, got):
        assert part in error["message"]


def test_a_folder_outside_by_steps_up(standing: Standing, elsewhere: Path) -> None:
    fields = in_data(standing)
    fields["data"]["root"] = f"{standing.data}/../../{elsewhere.name}"
    assert refused(standing, fields)["field"] == "data.root"


@pytest.mark.parametrize("name", ["link.csv", "link-*.csv", "folder"])
def test_a_link_that_leads_outside(standing: Standing, elsewhere: Path, name: str) -> None:
    folder = standing.data / "links"
    if not folder.exists():
        folder.mkdir()
        (folder / "link.csv").symlink_to(elsewhere / "valid.csv")
        (folder / "link-1.csv").symlink_to(elsewhere / "valid.csv")
        (folder / "folder").symlink_to(elsewhere)
    fields = in_data(standing)
    if name == "folder":
        fields["data"]["root"] = str(folder / name)
    else:
        fields["data"] |= {"root": str(folder), "train": [name]}
    error = refused(standing, fields)
    assert error["field"] == ("data.root" if name == "folder" else "data.train.0")
    assert "a path outside the allowed roots" in error["message"]


FILES: list[tuple[str, Callable[[Path], object], str, str]] = [
    ("no-label", lambda path: path.write_text("user,item,price,tags\nu,i,1,t\n"), "label.column", "the label column"),
    ("no-item", lambda path: path.write_text("label,user,price,tags\n1,u,1,t\n"), "features.1.name", "columns item"),
    ("empty", lambda path: path.write_text(""), "data", "the file is empty"),
    ("no-rows", lambda path: path.write_text(HEADER + "\n"), "data.valid", "at least one row"),
]


@pytest.mark.parametrize(("name", "spoil", "field", "expected"), FILES)
def test_a_wrong_file(
    standing: Standing, name: str, spoil: Callable[[Path], object], field: str, expected: str
) -> None:
    folder = write_data(standing.data / name, num_rows=10)
    spoil(folder / "valid.csv")
    error = refused(standing, in_data(standing, data={"root": str(folder)}))
    assert (error["code"], error["field"], error["file"]) == ("data_file_invalid", field, str(folder / "valid.csv"))
    assert str(folder / "valid.csv") in error["message"] and expected in error["message"]


def test_a_wrong_task(standing: Standing) -> None:
    for task, field in [
        ({"kind": "guess"}, "task.kind"),
        ({"kind": "evaluate"}, "task.checkpoint"),
        ({"kind": "train", "init": "resume", "checkpoint": "/etc"}, "task.checkpoint"),
        ({"kind": "train", "checkpoint": "/etc"}, "task.init"),
        ({"kind": "evaluate", "init": "init_from", "checkpoint": "/etc"}, "task.init"),
        ({"kind": "predict", "split": "valid", "checkpoint": "/etc"}, "task.split"),
        ({"kind": "train", "speed": "high"}, "task.speed"),
    ]:
        answer = httpx.post(f"{standing.url}/v1/jobs", json={"config": in_data(standing), "task": task})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field), answer.text
