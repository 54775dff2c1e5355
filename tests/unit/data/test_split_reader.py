from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_jobs import bag_keys, integer_key, job, text_key
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.data import files as files_module
from geartrain.data import reader as reader_module
from geartrain.data.chunks import Chunk
from geartrain.data.decode import DecodedChunk
from geartrain.data.index import build_index
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import ChunkCache, SplitReader
from geartrain.errors import BadRowError

NUM_ROWS = 57
FEATURES = [
    {"name": "user", "kind": "categorical"},
    {"name": "history", "kind": "sequence", "table": "item", "pooling": "sum"},
    {"name": "price", "kind": "numeric"},
    {"name": "item", "kind": "categorical"},
]
HISTORIES = [list(range(row % 4)) for row in range(NUM_ROWS)]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """57 rows in row groups of 10: the value of every column of row r can be told from r."""
    root = tmp_path_factory.mktemp("data")
    rows = np.arange(NUM_ROWS)
    histories = pa.array(HISTORIES, pa.list_(pa.int64()))
    ids = {"user": rows, "item": rows + 1000, "history": histories}
    table = pa.table({"label": rows % 2, "price": rows * 0.5, **ids})
    pq.write_table(table, root / "train.parquet", row_group_size=10)
    return job(root, FEATURES, format="parquet", group_by="item")


@pytest.fixture
def open_reader(config):
    reader = SplitReader(build_index(config), config, "train")
    yield reader
    reader.close()


def rows_at(order: PassOrder, start: int, stop: int) -> list[int]:
    return [chunk * 10 + int(row) for chunk, rows in order.locate(start, stop) for row in rows]


def check(batch, rows: list[int]) -> None:
    """The batch holds exactly these rows of the file, by a loop over all that it says."""
    num_samples = len(rows)
    assert batch.num_samples == num_samples
    assert batch.labels.tolist() == [row % 2 for row in rows]
    assert batch.numeric.tolist() == [[row * 0.5, 0.0] for row in rows]
    assert batch.group_ids.tolist() == [integer_key(row + 1000, "item") for row in rows]
    assert batch.bag_offsets.shape == (3 * num_samples + 1,)
    assert batch.bag_offsets[-1] == len(batch.keys)
    assert batch.pooling_offsets is batch.bag_offsets
    for sample, row in enumerate(rows):
        assert bag_keys(batch, 0, sample) == [integer_key(row, "user")]
        assert bag_keys(batch, 1, sample) == [integer_key(value, "item") for value in HISTORIES[row]]
        assert bag_keys(batch, 2, sample) == [integer_key(row + 1000, "item")]
    assert (batch.labels.dtype, batch.numeric.dtype) == (np.float32, np.float32)
    assert (batch.keys.dtype, batch.bag_offsets.dtype, batch.group_ids.dtype) == (np.uint64, np.int32, np.uint64)
    assert batch.keys.flags.c_contiguous
    assert batch.numeric.flags.c_contiguous


@given(st.integers(0, NUM_ROWS), st.integers(0, NUM_ROWS), st.booleans(), st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_a_batch_is_the_rows_at_its_positions(config, one, other, shuffle, pass_index):
    reader = SplitReader(build_index(config), config, "train")
    order = PassOrder(reader.chunk_rows, seed=9, pass_index=pass_index, shuffle=shuffle)
    start, stop = sorted((one, other))
    batch = reader.batch(order, start, stop)
    check(batch, rows_at(order, start, stop))
    assert len(batch.bag_offsets) == 3 * (stop - start) + 1
    reader.close()


def test_the_batches_of_a_pass_are_all_of_its_rows_however_it_is_cut(open_reader):
    order = PassOrder(open_reader.chunk_rows, seed=3, pass_index=0, shuffle=True)
    by_size = {}
    for size in (1, 7, 10, 57):
        batches = [open_reader.batch(order, at, min(at + size, NUM_ROWS)) for at in range(0, NUM_ROWS, size)]
        by_size[size] = [int(key) for batch in batches for key in batch.keys[: batch.num_samples]]
    assert sorted(by_size[1]) == sorted(integer_key(row, "user") for row in range(NUM_ROWS))
    assert all(keys == by_size[1] for keys in by_size.values())


def test_an_empty_batch_has_its_shapes(open_reader):
    batch = open_reader.batch(PassOrder(open_reader.chunk_rows, 1, 0, True), 5, 5)
    assert batch.labels.shape == (0,)
    assert batch.numeric.shape == (0, 2)
    assert batch.keys.shape == (0,)
    assert batch.bag_offsets.tolist() == [0]


def test_slots_with_one_key_each_need_no_bags(tmp_path):
    (tmp_path / "train.csv").write_text("label,a,b\n1,x,y\n0,z,w\n1,q,r\n")
    features = [{"name": name, "kind": "categorical"} for name in ("b", "a")]
    config = job(tmp_path, features, group_by="a")
    reader = SplitReader(build_index(config), config, "train")
    batch = reader.batch(PassOrder([3], 1, 0, False), 1, 3)
    assert batch.bag_offsets.tolist() == [0, 1, 2, 3, 4]
    assert batch.pooling_offsets is None
    assert batch.group_ids.tolist() == batch.keys[2:].tolist()
    assert batch.numeric.shape == (2, 0)
    reader.close()


def test_batches_own_their_arrays(open_reader):
    order = PassOrder(open_reader.chunk_rows, 1, 0, False)
    first = open_reader.batch(order, 0, 5)
    for array in (first.labels, first.numeric, first.keys, first.bag_offsets, first.group_ids):
        array[...] = 0
    check(open_reader.batch(order, 0, 5), [0, 1, 2, 3, 4])


def test_many_threads_read_what_one_reads(open_reader):
    order = PassOrder(open_reader.chunk_rows, seed=4, pass_index=0, shuffle=True)
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda at: open_reader.batch(order, at, at + 1), range(NUM_ROWS)))
    for at, batch in enumerate(batches):
        check(batch, rows_at(order, at, at + 1))


def test_a_chunk_is_decoded_once_and_ahead_when_asked(config, monkeypatch):
    decoded = []
    done = threading.Event()
    original = reader_module.read_chunk

    def counting(chunk, schema, files):
        found = original(chunk, schema, files)
        decoded.append((chunk.row_group, threading.current_thread().name))
        done.set()
        return found

    monkeypatch.setattr(reader_module, "read_chunk", counting)
    reader = SplitReader(build_index(config), config, "train")
    order = PassOrder(reader.chunk_rows, 1, 0, shuffle=False)
    reader.prefetch(2)
    assert done.wait(10)
    for at in range(20, 30):
        reader.batch(order, at, at + 1)
    reader.prefetch(2)
    reader.close()
    assert [row_group for row_group, _ in decoded] == [2]
    assert decoded[0][1].startswith("decode-train")


def test_a_bad_row_met_ahead_is_raised_by_the_batch_that_needs_it(tmp_path):
    (tmp_path / "train1.csv").write_text("label,a\n1,x\n")
    (tmp_path / "train2.csv").write_text("label,a\n7,x\n")
    config = job(tmp_path, [{"name": "a", "kind": "categorical"}])
    reader = SplitReader(build_index(config), config, "train")
    order = PassOrder(reader.chunk_rows, 1, 0, shuffle=False)
    reader.prefetch(1)
    assert reader.batch(order, 0, 1).num_samples == 1
    for _ in range(2):
        with pytest.raises(BadRowError) as caught:
            reader.batch(order, 0, 2)
        assert caught.value.facts["file"] == str(tmp_path / "train2.csv")
    reader.close()


def chunk_of(number: int) -> Chunk:
    return Chunk("file", number, 1, 0, 0, number)


def decoded_of(num_rows: int) -> DecodedChunk:
    """A decoded chunk of 4 bytes per row."""
    nothing = np.empty((0, num_rows), np.uint64)
    return DecodedChunk(np.zeros(num_rows, np.float32), np.empty((num_rows, 0), np.float32), nothing, ())


def test_the_cache_keeps_what_was_used_last_within_its_budget():
    cache = ChunkCache(budget_bytes=100)
    loads = []

    def get(number: int, num_rows: int = 10) -> None:
        cache.get(chunk_of(number), lambda: loads.append(number) or decoded_of(num_rows))

    get(1), get(2), get(1), get(3)
    assert loads == [1, 2, 3]
    assert cache.num_bytes == 80
    get(1)
    assert loads == [1, 2, 3]
    get(2)
    assert loads == [1, 2, 3, 2]
    get(4, 1000)
    get(4, 1000)
    get(2)
    assert loads == [1, 2, 3, 2, 4]
    assert cache.num_bytes == 4040, "the last two stay: batches are cut from one while the other is decoded ahead"
    get(5)
    get(6)
    assert cache.num_bytes == 80


def test_a_failed_load_is_raised_and_tried_again():
    cache = ChunkCache(1000)

    def fail() -> DecodedChunk:
        raise BadRowError("no", row=1)

    for _ in range(2):
        with pytest.raises(BadRowError):
            cache.get(chunk_of(1), fail)
    assert cache.get(chunk_of(1), lambda: decoded_of(3)).num_rows == 3


def test_threads_that_want_one_chunk_wait_for_one_load():
    cache = ChunkCache(1000)
    loads, started, go_on = [], threading.Event(), threading.Event()

    def load() -> DecodedChunk:
        loads.append(1)
        started.set()
        assert go_on.wait(10)
        return decoded_of(2)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(cache.get, chunk_of(1), load)
        assert started.wait(10)
        others = [pool.submit(cache.get, chunk_of(1), load) for _ in range(3)]
        go_on.set()
        found = {id(future.result()) for future in (first, *others)}
    assert len(found) == 1
    assert loads == [1]


def test_more_files_than_may_be_open(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_MAX_OPEN", 2)
    for number in range(10):
        (tmp_path / f"train{number}.csv").write_text(f"label,a\n1,{number}\n0,{number}\n")
    config = job(tmp_path, [{"name": "a", "kind": "categorical"}])
    reader = SplitReader(build_index(config), config, "train", cache=ChunkCache(0))
    order = PassOrder(reader.chunk_rows, 1, 0, shuffle=True)
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda at: reader.batch(order, at, at + 1), range(20)))
    found = sorted(int(batch.keys[0]) for batch in batches)
    assert found == sorted(text_key(str(number), "a") for number in range(10) for _ in range(2))
    reader.close()
