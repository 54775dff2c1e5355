"""A manifest that contradicts itself, or leaves out a part, is refused by the field, before anything else is read."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from checkpoint_folders import dense_files, manifest, rows_file
from hypothesis import assume, given
from hypothesis import strategies as st

from coordinator.checkpoints import Manifest, read_manifests
from coordinator.manifest_checks import check_manifest
from geartrain.checkpoint_layout import MANIFEST_NAME, write_manifest
from geartrain.errors import CheckpointError

PLACE = Path("/out/checkpoints/pass-1")
SEGMENTS = [
    {"name": "w", "shape": [2, 3], "start": 0, "stop": 6, "kind": "parameter"},
    {"name": "m", "shape": [4], "start": 6, "stop": 10, "kind": "average"},
]


def whole(servers: int = 2, tables: int = 2, delta: bool = False) -> dict[str, Any]:
    """A manifest of s0, s1 ... and t0, t1 ..., with ten dense values."""
    names = [f"s{number}" for number in range(servers)]
    kind = {"kind": "delta", "base": 1} if delta else {}
    files: dict[str, Any] = {
        f"t{table}.{server}.rows": rows_file(server, f"t{table}", **kind)
        for server, table in itertools.product(names, range(tables))
    }
    for number, server in enumerate(names):
        files |= dense_files(server, 10 * number // servers, 10 * (number + 1) // servers)
    base = {"checkpoint": "full", "job": "job", "term": 1, "version": 1} if delta else None
    return manifest(servers=names, files=files, segments=copy.deepcopy(SEGMENTS), base=base)


def check(fields: dict[str, Any]) -> None:
    check_manifest(PLACE, msgspec.convert(fields, Manifest))


def refused(fields: dict[str, Any]) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        check(fields)
    assert caught.value.facts["file"] == str(PLACE / MANIFEST_NAME)
    assert caught.value.message.startswith(f"{PLACE / MANIFEST_NAME} is damaged: {caught.value.facts['field']}: ")
    return caught.value


sizes = st.tuples(st.integers(1, 12), st.integers(0, 3), st.booleans())


@given(sizes)
def test_a_whole_manifest_is_accepted(size: tuple[int, int, bool]) -> None:
    check(whole(*size))


def test_figures_without_a_value_have_their_reasons() -> None:
    check({**whole(), "metrics": {"auc": None, "auc_reason": "all labels are 0", "logloss": 0.5, "num_samples": 3}})


@given(sizes, st.data())
def test_no_file_may_be_left_out(size: tuple[int, int, bool], data: st.DataObject) -> None:
    """Unless it is the only one of a table: whether the table is missing, only the config can tell."""
    fields = whole(*size)
    name = data.draw(st.sampled_from(sorted(fields["files"])))
    gone = fields["files"].pop(name)
    assume("table" not in gone or size[0] > 1)
    error = refused(fields)
    assert error.facts["field"] == "files"
    assert f"server {gone['server']}" in error.message and gone.get("table", "dense") in error.message


@given(st.integers(1, 12), st.integers(0, 3), st.data())
def test_no_server_may_be_left_out(servers: int, tables: int, data: st.DataObject) -> None:
    """Also one whose dense range is empty, so that the others still have the whole vector."""
    fields = whole(servers, tables)
    fields["servers"].append("empty")
    fields["files"] |= {f"t{table}.empty.rows": rows_file("empty", f"t{table}") for table in range(tables)}
    fields["files"] |= dense_files("empty", 10, 10)
    check(fields)
    server = data.draw(st.sampled_from(fields["servers"]))
    fields["files"] = {name: about for name, about in fields["files"].items() if about["server"] != server}
    error = refused(fields)
    assert (error.facts["field"], f"server {server} " in error.message) == ("files", True)


@given(sizes, st.data())
def test_no_part_may_be_there_twice(size: tuple[int, int, bool], data: st.DataObject) -> None:
    fields = whole(*size)
    name = data.draw(st.sampled_from(sorted(fields["files"])))
    fields["files"]["again"] = fields["files"][name]
    error = refused(fields)
    assert error.facts["field"] == 'files["again"]'
    assert f"are already in {name}" in error.message and f"server {fields['files'][name]['server']}" in error.message


@given(sizes, st.data())
def test_every_field_of_a_file_has_its_type(size: tuple[int, int, bool], data: st.DataObject) -> None:
    fields = whole(*size)
    name = data.draw(st.sampled_from(sorted(fields["files"])))
    field = data.draw(st.sampled_from(sorted(fields["files"][name])))
    odd = st.sampled_from([[1], {}, {"a": 1}, True, 1.5, -1, 2**64, "", b""])
    fields["files"][name][field] = data.draw(odd)
    assert refused(fields).facts["field"] == f'files["{name}"].{field}'
    del fields["files"][name][field]
    assert refused(fields).facts["field"] == f'files["{name}"].{field}'


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(fields: dict[str, Any]) -> None:
        at: Any = fields
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return change


ROWS, DENSE, STATES = "t0.s1.rows", "dense.s1.npy", "dense_states.s1.npy"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (put("servers", value=[]), "servers"),
        (put("servers", value=["s0", "s1", "s1"]), "servers"),
        (put("servers", value=["s0"]), f'files["{ROWS}"].server'),
        (put("servers", value=["s0", "s1", "s2"]), "files"),
        (put("files", value={}), "files"),
        (put("files", "../t", value={}), 'files["../t"]'),
        (put("files", ".t", value={}), 'files[".t"]'),
        (put("files", ROWS, value="x"), f'files["{ROWS}"]'),
        (put("files", ROWS, "more", value=1), f'files["{ROWS}"].more'),
        (put("files", ROWS, "part", value="columns"), f'files["{ROWS}"].part'),
        (put("files", ROWS, "row_dtype", value="fp8"), f'files["{ROWS}"].row_dtype'),
        (put("files", ROWS, "version", value=4), f'files["{ROWS}"].version'),
        (put("files", ROWS, "num_deleted", value=4), f'files["{ROWS}"].num_deleted'),
        (put("files", ROWS, "base", value=2), f'files["{ROWS}"].base'),
        (put("files", ROWS, "kind", value="delta"), "base"),
        (put("files", DENSE, "version", value=2), f'files["{DENSE}"].version'),
        (put("files", DENSE, "start", value=4), f'files["{DENSE}"].start'),
        (put("files", DENSE, "start", value=6), f'files["{DENSE}"].start'),
        (put("files", DENSE, "stop", value=4), f'files["{DENSE}"].stop'),
        (put("files", DENSE, "stop", value=11), f'files["{STATES}"].stop'),
        (put("files", STATES, "start", value=4), f'files["{STATES}"].start'),
        (put("files", STATES, "optimizer", value="sgd"), f'files["{STATES}"].optimizer'),
        (put("dense_optimizer", value={"type": "sgd"}), 'files["dense.s0.npy"].optimizer'),
        (put("version", value=61), 'files["t0.s0.rows"].version'),
        (put("segments", value=[]), "segments"),
        (put("segments", value=SEGMENTS[:1]), "segments"),
        (put("segments", 1, "start", value=5), "segments[1].start"),
        (put("segments", 1, "stop", value=11), "segments[1].stop"),
        (put("segments", 1, "shape", value=[-4]), "segments[1].shape"),
        (put("segments", 1, "name", value="w"), "segments[1].name"),
        (put("segments", 1, "kind", value="other"), "segments[1].kind"),
        (put("pass_versions", value=[]), "pass_versions"),
        (put("pass_versions", value=[99]), "pass_versions"),
        (put("passes_done", value=2), "pass_versions"),
        (put("best", "pass_index", value=1), "best.pass_index"),
        (put("best", "version", value=4), "best.version"),
        (put("metrics", value={"auc": "high"}), 'metrics["auc"]'),
        (put("best", "metrics", value={"auc": None, "auc_reason": 1}), 'best.metrics["auc_reason"]'),
        (put("schedule", "factor", value="x"), "schedule.factor"),
        (put("schedule", "more", value=1), "schedule.more"),
    ],
)
def test_what_does_not_fit_is_named(change: Callable[[dict[str, Any]], object], field: str) -> None:
    fields = whole()
    change(fields)
    assert refused(fields).facts["field"] == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (put("base", value=None), "base"),
        (put("base", "version", value=2), 'files["t0.s0.rows"].base'),
        (put("base", "version", value=4), "base.version"),
        (put("files", ROWS, "base", value=None), f'files["{ROWS}"].base'),
    ],
)
def test_a_delta_builds_on_its_base(change: Callable[[dict[str, Any]], object], field: str) -> None:
    fields = whole(delta=True)
    change(fields)
    assert refused(fields).facts["field"] == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (put("version", value=2**40), "version"),
        (put("version", value=-1), "version"),
        (put("servers", value="s0"), "servers"),
        (put("servers", value=["s0", 1]), "servers[1]"),
        (put("train_seconds", value=-1.0), "train_seconds"),
        (put("metrics", value={"auc": [1]}), "metrics[...]"),
        (put("best", "without_gain", value=-1), "best.without_gain"),
        (put("index", "key_kinds", value={"t": "float"}), "index.key_kinds[...]"),
        (put("index", "standard", value={"age": [0.0, 0.0]}), "index.standard[...][1]"),
        (put("segments", 0, "stop", value="6"), "segments[0].stop"),
        (put("pass_versions", value=[2**32]), "pass_versions[0]"),
        (put("base", value={"checkpoint": "full"}), "base.job"),
        (put("more", value=1), "more"),
    ],
)
def test_a_field_of_another_type_or_range_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], field: str
) -> None:
    fields = whole()
    change(fields)
    write_manifest(tmp_path, fields)
    with pytest.raises(CheckpointError) as caught:
        read_manifests(tmp_path)
    assert (caught.value.facts["file"], caught.value.facts["field"]) == (str(tmp_path / MANIFEST_NAME), field)


@given(st.sampled_from(sorted(whole())), st.none() | st.just([[]]) | st.just({"": {}}) | st.integers() | st.text())
def test_an_odd_field_is_never_an_error_of_another_kind(field: str, value: Any) -> None:
    try:
        made = msgspec.convert({**whole(), field: value}, Manifest)
    except msgspec.ValidationError:
        return
    try:
        check_manifest(PLACE, made)
    except CheckpointError as error:
        assert error.facts["file"] == str(PLACE / MANIFEST_NAME) and error.facts["field"]
