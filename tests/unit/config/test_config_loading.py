"""Files, overrides and environment variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geartrain.config import load_config, read_config
from geartrain.errors import ConfigError

TEXT = """\
features: [{name: user, kind: categorical}]
label: click
data: {train: [train.csv]}
model: {type: lr}
training:
  dense_optimizer: {type: adam, lr: 1e-3}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(TEXT)
    return path


def test_numbers_are_those_of_yaml_1_2(file: Path) -> None:
    assert load_config(file).training.dense_optimizer.lr == 0.001
    file.write_text(TEXT.replace("lr: 1e-3", "lr: 1E+1").replace("user", "yes"))
    config = load_config(file)
    assert config.training.dense_optimizer.lr == 10.0
    assert config.features[0].name == "yes"


def test_root_defaults_to_the_folder_of_the_file(file: Path, tmp_path: Path) -> None:
    assert load_config(file).data.root == str(tmp_path.resolve())


def test_json_file_equals_yaml_file(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "job.json"
    other.write_text(json.dumps(read_config(file)))
    assert load_config(other) == load_config(file)


def test_fault_has_the_file_among_its_facts(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(file, ["model.type=x"])
    assert caught.value.facts["file"] == str(file)
    assert caught.value.facts["field"] == "model.type"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("job.yaml", "name: a\n\nfeatures: ]\n", 3),
        ("job.yaml", "name: a\n\tmodel: b\n", 2),
        ("job.yaml", "name: a\nname: b\n", 2),
        ("job.yaml", "name: a\n---\nname: b\n", 2),
        ("job.json", '{"name": "a",\n "label" "b"}', 2),
    ],
)
def test_syntax_error_names_the_line(tmp_path: Path, name: str, text: str, line: int) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"line {line}") as caught:
        load_config(path)
    assert caught.value.facts["line"] == line


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", b'{"name": "a", "name": "b"}', "each field once"),
        ("a.json", b'{"training": NaN}', "a finite number"),
        ("a.json", b"[1]", "a mapping"),
        ("a.yaml", b"", "a mapping"),
        ("a.yaml", b"just text", "a mapping"),
        ("a.yaml", b"name: \xff\xfe", "UTF-8 text"),
        ("a.yaml", b"[" * 5000 + b"]" * 5000, "YAML 1.2"),
        ("a.yaml", b"name: 2020-02-31", "YAML 1.2"),
        ("a.yaml", b"name: " + b"9" * 5000, "YAML 1.2"),
        ("a.yaml", b"name: !!bool maybe", "YAML 1.2"),
        ("a.json", b"[" * 100_000, "JSON"),
        ("a.json", b'{"name": ' + b"9" * 5000 + b"}", "JSON"),
    ],
)
def test_file_that_holds_no_config(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.facts["expected"] == expected
    assert caught.value.facts["file"] == str(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: expected a config file, no such file"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="expected a config file"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("training.passes=7", ("training", "passes"), 7),
        ("training.dense_optimizer.lr=1e-2", ("training", "dense_optimizer", "lr"), 0.01),
        ("features.0.table=shared", ("features", 0, "table"), "shared"),
        ("model.hidden=[4, 2]", ("model", "hidden"), [4, 2]),
        ("sync.mode=sync", ("sync", "mode"), "sync"),
        ("data.separator='='", ("data", "separator"), "="),
        ("name=a=b", ("name",), "a=b"),
        ("training.early_stopping=", ("training", "early_stopping"), None),
    ],
)
def test_override_sets_one_field(file: Path, override: str, path: tuple[Any, ...], value: Any) -> None:
    here: Any = read_config(file, [override])
    for part in path:
        here = here[part]
    assert here == value
    assert type(here) is type(value)


def test_overrides_apply_in_order(file: Path) -> None:
    config = load_config(file, ["training.passes=2", "training.passes=5"])
    assert config.training.passes == 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.passes", "--set: expected key.path=value"),
        ("=3", "--set: expected key.path=value"),
        ("a..b=3", "--set: expected key.path=value"),
        ("features.1.name=x", "features.1: expected an index from 0 to 0"),
        ("features.last=x", "features.last: expected an index from 0 to 0"),
        ("label.column=x", "label: expected a section"),
        ("model.hidden=[1", "model.hidden: expected a YAML value"),
        ("name=2020-02-31", "name: expected a YAML value"),
        ("training.batchsize=3", "training.batchsize: unknown field"),
        ("speed.limit=3", "speed: unknown field"),
    ],
)
def test_override_that_cannot_be_applied(file: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(file, [override])
    assert caught.value.message.startswith(message)
