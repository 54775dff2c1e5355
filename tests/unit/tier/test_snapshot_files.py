"""A checkpoint restores every row on any number of servers, and a damaged one is refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from loading_process import LARGE
from snapshot_servers import (
    KEYS,
    PATIENT_S,
    SPECS,
    UNIFORM,
    Server,
    change_manifest,
    cluster,
    contents,
    manifest,
    save,
)

from embedding_tier.restore import Checkpoint
from embedding_tier.snapshot import shard_ranges
from embedding_tier.table_reader import TableReader
from geartrain.checkpoint_layout import write_manifest
from geartrain.errors import CheckpointError
from geartrain.wire.messages import TableSpec

pytestmark = pytest.mark.usefixtures("no_fsync")

NUM_LARGE = 1_000_000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    servers = cluster(3)
    for server in servers:
        for version in (1, 2):
            server.train(version)
    save(servers, tmp_path)
    return tmp_path


@pytest.mark.parametrize("num_servers", [1, 2, 5, 7])
def test_three_servers_restore_on_any_number_and_train_on_alike(checkpoint: Path, num_servers: int) -> None:
    same, other = cluster(3), cluster(num_servers)
    for server in same:
        server.train(1)
        server.train(2)
    for server in other:
        server.load(checkpoint)
    kept = contents(same)
    assert contents(other) == kept
    assert kept["user/id"][0] == sorted(KEYS["user/id"].tolist()) == kept["halves"][0]
    values = kept["user/id"][1]
    assert all(row != values[0] for row in values[1:])
    for version in (3, 4):  # one window may hide what the next one shows, as the order of births
        for server in [*same, *other]:
            server.train(version, share=0.7)
    assert contents(other) == contents(same)


def test_counters_of_ids_without_a_row_go_on(tmp_path: Path) -> None:
    """An id that was shown once before the checkpoint, and once after it, has its two shows."""
    (server,) = cluster(1)
    server.train(1)
    assert contents([server])["halves"][0] == []
    save([server], tmp_path)
    for restored in cluster(2):
        restored.load(tmp_path)
        restored.train(2)
        assert restored.tables[3].store.num_rows > 0


def test_without_states_only_values_and_statistics_are_taken(checkpoint: Path) -> None:
    (full,), (bare,) = cluster(1), cluster(1)
    full.load(checkpoint)
    bare.load(checkpoint, with_states=False)
    whole, values = contents([full]), contents([bare])
    for name in KEYS:
        assert values[name][:2] == whole[name][:2]
        assert np.array_equal(values[name][3], whole[name][3])
        assert not np.any(values[name][2]) and not np.any(values[name][4])
        assert not any(values[name][5]) and not any(values[name][6])
    assert np.any(whole["user/id"][2]) and any(whole["halves"][5])
    assert values["dense"] == whole["dense"]
    assert not np.any(values["dense states"])


def test_values_alone_need_no_like_optimizer_or_admission(checkpoint: Path) -> None:
    other = [TableSpec(spec.name, spec.dim, {"type": "sgd"}, UNIFORM, 1, spec.row_dtype) for spec in SPECS]
    (bare,), (full,) = cluster(1, other), cluster(1)
    bare.load(checkpoint, with_states=False)
    full.load(checkpoint)
    assert contents([bare])["user/id"][:2] == contents([full])["user/id"][:2]


def test_loading_in_small_parts_is_the_same(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = cluster(2), cluster(2)
    for server in whole:
        server.load(checkpoint)
    monkeypatch.setattr("embedding_tier.row_loading.BATCH_ROWS", 7)
    for server in parts:
        server.load(checkpoint)
    assert contents(parts) == contents(whole)


def test_saving_in_small_parts_is_the_same(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedding_tier.snapshot.CHUNK_ROWS", 5)
    monkeypatch.setattr("embedding_tier.snapshot.CHUNK_SKETCH_BYTES", 1 << 15)
    (server,) = cluster(1)
    server.load(checkpoint)
    save([server], checkpoint / "again")
    (again,) = cluster(1)
    again.load(checkpoint / "again")
    assert contents([again]) == contents([server])


def test_a_server_reads_no_more_than_its_shards(checkpoint: Path) -> None:
    """What is damaged in the last shards of a file is found by the one that owns them, and by no other."""
    first, last = cluster(2)
    name = "table-user%2Fid.s2.rows"
    about = manifest(checkpoint)["files"][name]
    with TableReader(checkpoint / name, about) as reader:
        final = list(reader.entries.values())[-1]
    data = bytearray((checkpoint / name).read_bytes())
    data[final.offset] ^= 1
    (checkpoint / name).write_bytes(data)
    first.load(checkpoint)
    with pytest.raises(CheckpointError) as caught:
        last.load(checkpoint)
    assert caught.value.facts["field"] == f"table user/id: crc32 of shard {final.shard}"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a million rows."""
    directory = tmp_path_factory.mktemp("large")
    writer = Server(0, 1, [LARGE])
    for keys in np.split(np.arange(NUM_LARGE, dtype=np.uint64), 10):
        writer.push({"large": (keys, np.ones((len(keys), LARGE.dim), dtype=np.float32))}, 1)
    writer.job.version = 1
    save([writer], directory)
    return directory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("at_once", "is_little"), [(0, True), (NUM_LARGE, False)])
def test_little_memory_is_needed_beside_the_table(large: Path, at_once: int, is_little: bool) -> None:
    """The peak of a process that loads it: as long as the file for rows, a third more for the index, and no more.

    That the bound means something is shown by the same process when it reads all rows at once.
    """
    program = Path(__file__).with_name("loading_process.py")
    command = [sys.executable, str(program), str(large), str(at_once)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENT_S)
    assert done.returncode == 0, done.stderr
    num_rows, grown = map(int, done.stdout.split())
    file_bytes = (large / "table-large.s0.rows").stat().st_size
    assert num_rows == NUM_LARGE
    assert grown > file_bytes
    assert (grown < 1.7 * file_bytes) is is_little, grown / file_bytes


def test_all_shards_are_cut_once_and_in_order() -> None:
    rng = np.random.default_rng(1)
    for counts in (np.zeros(1024, np.int64), np.full(1024, 20_000), rng.integers(0, 100, 1024)):
        for sketch_bytes in (0, 1024, 1 << 18, 1 << 23):
            ranges = list(shard_ranges(counts, sketch_bytes))
            assert [shard for first, last in ranges for shard in range(first, last)] == list(range(1024))
            for first, last in ranges:
                assert last - first == 1 or counts[first : last - 1].sum() < 1 << 14
                assert last - first == 1 or (last - first) * sketch_bytes <= 1 << 22


def refused(directory: Path, specs: list[TableSpec] = SPECS, with_states: bool = True) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        cluster(1, specs)[0].load(directory, with_states)
    return caught.value


def all_files() -> list[str]:
    return [*(f"table-{name.replace('/', '%2F')}.s1.rows" for name in KEYS), "dense.s1.npy", "dense_states.s1.npy"]


@pytest.mark.parametrize("name", all_files())
def test_every_file_is_needed_whole_and_unchanged(checkpoint: Path, name: str) -> None:
    path = checkpoint / name
    data = path.read_bytes()

    def flipped(position: int) -> bytes:
        return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]

    for damaged in (data[:-1], data + b"\x00", b"", data[:20], flipped(len(data) - 1), flipped(9), flipped(60)):
        path.write_bytes(damaged)
        error = refused(checkpoint)
        assert error.facts["file"] == str(path)
        assert error.facts["field"]
    path.unlink()
    assert refused(checkpoint).facts["file"] == str(path)


@pytest.mark.parametrize("name", all_files())
def test_a_part_that_the_manifest_lacks_is_named(checkpoint: Path, name: str) -> None:
    files = manifest(checkpoint)["files"]
    del files[name]
    change_manifest(checkpoint, files=files)
    assert "of server s1 is missing" in refused(checkpoint).message


def without(checkpoint: Path, what: str) -> dict[str, Any]:
    return {name: about for name, about in manifest(checkpoint)["files"].items() if what not in name}


def test_without_its_sparse_part_nothing_loads(checkpoint: Path) -> None:
    change_manifest(checkpoint, files=without(checkpoint, "table-"))
    assert "only in the job" in refused(checkpoint).message


def test_without_a_writer_the_dense_vector_has_a_gap(checkpoint: Path) -> None:
    change_manifest(checkpoint, files=without(checkpoint, ".s1."))
    assert "the dense blocks hold 3 values, the model has 10" in refused(checkpoint).message


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"optimizer": {"type": "ftrl"}}, "optimizer"),
        ({"row_dtype": "fp32"}, "row_dtype"),
        ({"admission": {"type": "always"}}, "sketch_bytes"),
        ({"admission": {"type": "count", "n": 2, "sketch_mb": 2}}, "sketch_bytes"),
    ],
)
def test_another_table_is_refused(checkpoint: Path, changes: dict[str, Any], field: str) -> None:
    other = [msgspec.structs.replace(spec, **changes) if spec.name == "halves" else spec for spec in SPECS]
    error = refused(checkpoint, other)
    assert error.facts["field"] == f"table halves: {field}"
    assert error.facts["file"] == str(checkpoint / "table-halves.s0.rows")


def test_another_dim_is_refused_also_for_values_alone(checkpoint: Path) -> None:
    other = [msgspec.structs.replace(spec, dim=2) for spec in SPECS]
    for with_states in (True, False):
        assert refused(checkpoint, other, with_states).facts["field"] == "table user/id: dim"


def test_a_file_of_another_cut_is_refused(checkpoint: Path) -> None:
    """Every checksum is right, but the file was written at another version."""
    for server in (servers := cluster(3)):
        server.load(checkpoint)
        server.train(3)
    files = save(servers, checkpoint / "next")
    name = "table-few.s0.rows"
    (checkpoint / name).write_bytes((checkpoint / "next" / name).read_bytes())
    change_manifest(checkpoint, files={**manifest(checkpoint)["files"], name: files[name]})
    assert refused(checkpoint).facts["field"] == "table few: version"


def test_a_row_of_two_servers_is_refused(checkpoint: Path) -> None:
    """Two whole tables in one checkpoint: no key may have two rows."""
    (alone,) = cluster(1)
    alone.load(checkpoint)
    alone.name = "s8"
    alone.block.stop = alone.block.start  # of the dense vector it has no part
    files = {name: about for name, about in alone.take(checkpoint).items() if name.startswith("table-")}
    dense = {name: about for name, about in manifest(checkpoint)["files"].items() if name.startswith("dense")}
    for name, about in dense.items():
        files[name.replace(about["server"], "s8")] = {**about, "server": "s8"}
    change_manifest(checkpoint, files={**manifest(checkpoint)["files"], **files})
    assert "table user/id" in refused(checkpoint).message


def test_a_table_that_only_one_side_knows_is_refused(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="extra is only in the job"):
        Checkpoint(checkpoint).expect_tables([*KEYS, "extra"])
    with pytest.raises(CheckpointError, match="few is only in the checkpoint"):
        Checkpoint(checkpoint).expect_tables([name for name in KEYS if name != "few"])


@pytest.mark.parametrize("files", [[], {"a": 1}, {"a": {"part": "rows"}}, {"a": {"part": [], "server": {}}}])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, files: Any) -> None:
    write_manifest(tmp_path, {"job": "j", "term": 1, "version": 1, "files": files})
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged: files"):
        Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"manifest\.json cannot be read"):
        Checkpoint(tmp_path / "nowhere")


def test_a_manifest_without_files_has_no_servers(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"job": "j", "term": 1, "version": 1, "files": {}})
    assert Checkpoint(tmp_path).servers == []


def test_a_changed_byte_of_the_manifest_is_refused_by_servers(checkpoint: Path) -> None:
    path = checkpoint / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"version": ', b'"version": 1', 1))
    with pytest.raises(CheckpointError, match="its own checksum") as caught:
        Checkpoint(checkpoint)
    assert (caught.value.facts["file"], caught.value.facts["field"]) == (str(path), "crc32")


@pytest.mark.parametrize("strange", ["../{}/table-few.s0.rows", "x" * 256])
def test_a_file_name_cannot_leave_the_directory_nor_be_longer_than_any(checkpoint: Path, strange: str) -> None:
    files = manifest(checkpoint)["files"]
    files[strange.format(checkpoint.name)] = files.pop("table-few.s0.rows")
    change_manifest(checkpoint, files=files)
    assert "no plain file name" in refused(checkpoint).message
