"""A delta and its base restore exactly what was there; one without the other, or with another, is refused by name."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot_servers import MANY, SPECS, UNIFORM, Server, change_manifest, cluster, contents, manifest, save

from geartrain.errors import CheckpointError
from geartrain.wire.messages import TableSpec

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[list[Server], Path]:
    """Three servers in training; the folder of a delta of theirs, with its base beside it."""
    servers = cluster(3)
    for server in servers:
        server.train(1)
        server.train(2)
    save(servers, tmp_path / "full")
    for version in (3, 4, 5):
        for server in servers:
            server.train(version, share=0.2)
    save(servers, tmp_path / "delta", base=tmp_path / "full")
    return servers, tmp_path / "delta"


@pytest.mark.parametrize("num_servers", [1, 2, 5, 7])
def test_a_delta_and_its_base_are_the_whole_table(saved: tuple[list[Server], Path], num_servers: int) -> None:
    servers, delta = saved
    other = cluster(num_servers)
    for server in other:
        server.load(delta)
    for version in (6, 7):
        assert contents(other) == contents(servers)
        for server in [*servers, *other]:
            server.train(version, share=0.5)
    assert contents(other) == contents(servers)


def test_a_delta_has_what_changed_and_no_more(saved: tuple[list[Server], Path]) -> None:
    servers, delta = saved
    for table, store in ((table.name, table.store) for table in servers[0].tables):
        (about,) = (
            one for one in manifest(delta)["files"].values() if (one["server"], one.get("table")) == ("s0", table)
        )
        assert (about["kind"], about["version"], about["base"]) == ("delta", 5, 2)
        assert about["num_rows"] < store.num_rows or store.num_rows == about["num_rows"] in (0, 1, 3)
    gone = [one["num_deleted"] for one in manifest(delta)["files"].values() if one.get("table") == "bounded"]
    assert sum(gone) > 0


def test_rows_have_their_exact_values(tmp_path: Path) -> None:
    """Ids trained 20, 40, 30 and 10 times by a constant gradient, half of it before the full cut, half after."""
    spec = TableSpec("t", 3, {"type": "sgd"}, {"type": "zero"}, 1)
    (server,) = cluster(1, [spec])
    times = {11: 20, 22: 40, 33: 30, 44: 10}
    gradient = np.array([0.5, -2.0, 8.0], dtype=np.float32)

    def window(version: int, ids: list[int]) -> None:
        keys = np.array(ids, dtype=np.uint64)
        server.push({"t": (keys, np.tile(gradient, (len(ids), 1)))}, version)
        server.job.version = version

    for version in range(1, 21):
        window(version, [one for one, count in times.items() if count // 2 >= version])
    save([server], tmp_path / "full")
    for version in range(21, 41):
        window(version, [one for one, count in times.items() if count // 2 >= version - 20])
    save([server], tmp_path / "delta", base=tmp_path / "full")

    (restored,) = cluster(1, [spec])
    restored.load(tmp_path / "delta")
    (keys, values, _, statistics, last_versions, *_), *_ = contents([restored]).values()
    step = np.float32(0.1) * (gradient / np.float32(2))  # the decision's divisor
    for key, row, shown, last in zip(keys, values, statistics, last_versions, strict=True):
        wanted = np.zeros(3, dtype=np.float32)
        for _ in range(times[key]):
            wanted -= step
        assert row == wanted.tolist()
        assert (shown, last) == ([times[key], times[key] / 2], 20 + times[key] // 2)
    assert keys == sorted(times)


PLAIN = TableSpec("plain", 3, {"type": "adagrad"}, UNIFORM, 1)
SHORT_LIVED = TableSpec("short", 3, {"type": "adagrad"}, UNIFORM, 1, expiry={"type": "unseen", "versions": 2})
FADING = TableSpec(
    "fading", 3, {"type": "sgd"}, UNIFORM, 1,
    expiry={"type": "score", "threshold": 0.4, "decay": 0.5, "every_versions": 2},
)  # fmt: skip
CROWDED = TableSpec("crowded", 3, {"type": "sgd"}, UNIFORM, 1, "fp16", max_rows=1024, eviction="lfu")
COUNTED = TableSpec("counted", 3, {"type": "sgd"}, UNIFORM, 1, "bf16", {"type": "count", "n": 2, "sketch_mb": 1})
LIVES = [PLAIN, SHORT_LIVED, FADING, CROWDED, COUNTED]


@given(st.lists(st.sampled_from(["train", "full", "delta"]), min_size=1, max_size=9), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_any_chain_of_cuts_restores_what_was_there(program: list[str], seed: int) -> None:
    """Rows are born, change, leave and come again between a full cut and the deltas on it."""
    rng = np.random.default_rng(seed)
    (server,) = cluster(1, LIVES)
    with tempfile.TemporaryDirectory() as folder:
        full, last = None, None
        for number, act in enumerate([*program, "train", "delta"]):
            if act == "train":
                version = server.job.version + 1
                pushed = {}
                for table in server.tables:
                    keys = rng.permutation(MANY)[: rng.integers(0, 60)]
                    pushed[table.name] = keys, rng.normal(size=(len(keys), 3)).astype(np.float32)
                server.push(pushed, version)
                server.job.version = version
            else:
                last = Path(folder) / str(number)
                save([server], last, base=full if act == "delta" else None)
                full = last if act == "full" or full is None else full
        assert last is not None
        (restored,) = cluster(1, LIVES)
        restored.load(last)
        assert contents([restored]) == contents([server])


def test_a_server_that_cannot_give_a_delta_writes_everything(saved: tuple[list[Server], Path]) -> None:
    """It was restored, so it does not know what left since the base; the others do."""
    servers, delta = saved
    anew = Server(1, 3)
    anew.load(delta)
    mixed = [servers[0], anew, servers[2]]
    for server in mixed:
        server.train(6, share=0.2)
    files = save(mixed, delta.parent / "mixed", base=delta.parent / "full")
    kinds = {(about["server"], about.get("kind")) for about in files.values() if about.get("table")}
    assert kinds == {("s0", "delta"), ("s1", "full"), ("s2", "delta")}
    (restored,) = cluster(1)
    restored.load(delta.parent / "mixed")
    assert contents([restored]) == contents(mixed)


def test_values_alone_of_a_delta(saved: tuple[list[Server], Path]) -> None:
    servers, delta = saved
    (bare,) = cluster(1)
    bare.load(delta, with_states=False)
    values, whole = contents([bare]), contents(servers)
    for spec in SPECS:
        assert values[spec.name][:2] == whole[spec.name][:2]
        assert not np.any(values[spec.name][2]) and not any(values[spec.name][5])


def refused(directory: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        cluster(1)[0].load(directory)
    return caught.value


def test_a_delta_moved_without_its_base_is_refused(saved: tuple[list[Server], Path]) -> None:
    _, delta = saved
    moved = delta.parent / "elsewhere" / "delta"
    shutil.copytree(delta, moved)
    error = refused(moved)
    assert error.facts["field"] == "base.checkpoint"
    assert "'full'" in error.message and str(moved) in error.message
    shutil.copytree(delta.parent / "full", moved.parent / "full")
    cluster(1)[0].load(moved)


@pytest.mark.parametrize(("field", "value"), [("job", "another"), ("term", 2), ("version", 3)])
def test_another_base_of_the_same_name_is_refused(saved: tuple[list[Server], Path], field: str, value: object) -> None:
    _, delta = saved
    change_manifest(delta.parent / "full", **{field: value})
    error = refused(delta)
    assert (error.facts["field"], error.facts["value"]) == (f"base.{field}", value)
    assert error.facts["file"] == str(delta.parent / "full" / "manifest.json")


def base_of_another_version(delta: Path) -> None:
    """The manifests agree, the files do not: the table was written at another version than the base says."""
    base = {**manifest(delta)["base"], "version": 5}
    change_manifest(delta, base=base)
    change_manifest(delta.parent / "full", version=5)


def no_base(delta: Path) -> None:
    change_manifest(delta, base=None)


def a_name_that_leads_out(delta: Path) -> None:
    change_manifest(delta, base={**manifest(delta)["base"], "checkpoint": "../full"})


def itself(delta: Path) -> None:
    change_manifest(delta, base={**manifest(delta)["base"], "checkpoint": delta.name})


def a_delta_on_a_delta(delta: Path) -> None:
    shutil.rmtree(delta.parent / "full")
    shutil.copytree(delta, delta.parent / "full")
    change_manifest(delta.parent / "full", version=2)


def a_base_without_a_file(delta: Path) -> None:
    files = manifest(delta.parent / "full")["files"]
    del files["table-few.s1.rows"]
    change_manifest(delta.parent / "full", files=files)


def a_damaged_base(delta: Path) -> None:
    path = delta.parent / "full" / "table-few.s0.rows"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (base_of_another_version, "table user/id: version"),
        (no_base, "base"),
        (a_name_that_leads_out, "base.checkpoint"),
        (itself, "base.checkpoint"),
        (a_delta_on_a_delta, "base.files: table user/id of server s0"),
        (a_base_without_a_file, "base.files: table few of server s1"),
        (a_damaged_base, "table few: bytes"),
    ],
)
def test_a_wrong_base_is_refused(saved: tuple[list[Server], Path], damage: Callable[[Path], Any], field: str) -> None:
    _, delta = saved
    damage(delta)
    assert refused(delta).facts["field"] == field
