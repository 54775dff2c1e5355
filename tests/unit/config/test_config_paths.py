"""Only what lies under the allowed roots can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from geartrain.config import default_allowed_roots, load_config, parse_config, resolve_inside
from geartrain.errors import ConfigError

OUTSIDE = "a path outside the allowed roots"


def _config(root: str, train: str = "train.csv") -> dict[str, object]:
    return {
        "features": [{"name": "user", "kind": "categorical"}],
        "label": "click",
        "data": {"root": root, "train": [train]},
        "model": {"type": "lr"},
    }


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A folder for configs with a folder `data`, beside a folder `secret`."""
    (tmp_path / "jobs" / "data").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "train.csv").write_text("user,click\n")
    return tmp_path / "jobs"


def test_root_becomes_absolute(jobs: Path) -> None:
    assert parse_config(_config("data"), jobs, [jobs]).data.root == str(jobs / "data")
    assert parse_config(_config(str(jobs / "data")), jobs, [jobs]).data.root == str(jobs / "data")


@pytest.mark.parametrize("root", ["..", "../secret", "data/../../secret", "/", "~", "link", "data\0x"])
def test_root_outside_is_refused(jobs: Path, root: str) -> None:
    (jobs / "link").symlink_to(jobs.parent / "secret")
    with pytest.raises(ConfigError) as caught:
        parse_config(_config(root), jobs, [jobs] if root != "~" else [jobs / "data"])
    assert OUTSIDE in caught.value.message
    assert caught.value.facts["field"] == "data.root"


def test_sibling_whose_name_begins_like_a_root_is_outside(jobs: Path) -> None:
    (jobs.parent / "jobs2").mkdir()
    with pytest.raises(ConfigError, match=OUTSIDE):
        parse_config(_config("../jobs2"), jobs, [jobs])


def test_root_must_be_a_folder(jobs: Path) -> None:
    (jobs / "file").write_text("")
    for root in ("absent", "file"):
        with pytest.raises(ConfigError, match=r"^data\.root: expected a folder that exists"):
            parse_config(_config(root), jobs, [jobs])


@pytest.mark.parametrize("train", ["../secret/train.csv", "a/../b.csv", "/etc/passwd", "link.csv", "folder/train.csv"])
def test_data_file_outside_is_refused(jobs: Path, train: str) -> None:
    (jobs / "data" / "link.csv").symlink_to(jobs.parent / "secret" / "train.csv")
    (jobs / "data" / "folder").symlink_to(jobs.parent / "secret")
    with pytest.raises(ConfigError) as caught:
        parse_config(_config("data", train), jobs, [jobs])
    assert OUTSIDE in caught.value.message
    assert caught.value.facts["field"] == "data.train.0"
    assert caught.value.facts["value"] == train


def test_link_between_allowed_roots_is_followed(jobs: Path) -> None:
    secret = jobs.parent / "secret"
    (jobs / "data" / "link.csv").symlink_to(secret / "train.csv")
    config = parse_config(_config("data", "link.csv"), jobs, [jobs, secret])
    assert config.data.train == ("link.csv",)
    assert resolve_inside(jobs / "data", "link.csv", [secret]) == jobs / "data" / "link.csv"
    with pytest.raises(ConfigError, match=OUTSIDE):
        resolve_inside(jobs / "data", "link.csv")


def test_loop_of_links_is_no_folder(jobs: Path) -> None:
    (jobs / "loop").symlink_to(jobs / "loop")
    with pytest.raises(ConfigError, match="a folder that exists"):
        parse_config(_config("loop"), jobs, [jobs])


def test_variables_are_expanded(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PART", "data")
    monkeypatch.setenv("ALL", str(jobs))
    assert parse_config(_config("${ALL}/${PART}"), jobs, [jobs]).data.root == str(jobs / "data")
    assert parse_config(_config("./${PART}"), jobs, [jobs]).data.root == str(jobs / "data")


def test_variable_that_is_not_set_is_named(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT", raising=False)
    with pytest.raises(ConfigError, match=r"^data\.root: the environment variable ABSENT is not set$"):
        parse_config(_config("${ABSENT}/x"), jobs, [jobs])


def test_value_of_a_variable_is_not_told(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    for allowed in ([jobs], [Path("/")]):
        with pytest.raises(ConfigError) as caught:
            parse_config(_config("${TOKEN}"), jobs, allowed)
        assert "hunter2" not in str(caught.value.to_dict())


def test_data_variable_is_an_allowed_root_relative_to_the_working_folder(
    jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store" / "frappe").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEARTRAIN_DATA", "store")
    file = jobs / "job.json"
    file.write_text(
        '{"features": [{"name": "user", "kind": "categorical"}], "label": "click", "model": {"type": "lr"},'
        ' "data": {"root": "${GEARTRAIN_DATA}/frappe", "train": ["train.csv"]}}'
    )
    assert load_config(file).data.root == str(tmp_path / "store" / "frappe")
    assert default_allowed_roots(jobs) == (jobs, tmp_path / "store")
    with pytest.raises(ConfigError, match=OUTSIDE):
        load_config(file, allowed_roots=[jobs])
    monkeypatch.delenv("GEARTRAIN_DATA")
    assert default_allowed_roots(jobs) == (jobs,)
