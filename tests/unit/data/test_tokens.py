"""Tokens of rows without their keys: in every format, exactly those of the batches that the reader gives."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_jobs import REPOSITORY, job, read_all, sample_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geartrain.config import load_config
from geartrain.data import tokens as tokens_module
from geartrain.data.index import build_index
from geartrain.data.schema import DataSchema
from geartrain.data.tokens import MOST_COUNTED, count_tokens
from geartrain.errors import DataFileError

PLAIN = {"name": "user", "kind": "categorical"}
HISTORY = {"name": "history", "kind": "sequence", "table": "item"}
TAGS = {"name": "tags", "kind": "sequence", "separator": ";", "max_length": 2}


def tokens_of_batches(config, split="train"):
    """The slow way: all rows read as one batch, the bags of its sequence slots measured."""
    batch = read_all(config, split)
    is_sequence = [slot.kind == "sequence" for slot in DataSchema.from_config(config).slots]
    return np.diff(batch.bag_offsets).reshape(len(is_sequence), -1)[is_sequence].sum(axis=0).tolist()


def counted(config, split="train"):
    counts = count_tokens(config, build_index(config), split)
    assert counts.dtype == np.uint16
    return counts.tolist()


def test_text_with_missing_and_empty_values_and_a_limit(tmp_path):
    (tmp_path / "train.csv").write_text(
        "tags,label,user,history\na;b;c,1,u,1|2|3\n,0,u,\n-,1,v,1||-|2\na;-;b,0,v,-\n;;a,1,w,7\n"
    )
    config = job(tmp_path, [PLAIN, HISTORY, TAGS], missing=["", "-"])
    assert counted(config) == [5, 0, 2, 2, 2]
    assert tokens_of_batches(config) == [5, 0, 2, 2, 2]


def test_stripped_and_compressed_text_in_several_files(tmp_path):
    (tmp_path / "train.1.csv.gz").write_bytes(gzip.compress(b"label,history\n1, 1|2 \n0, - \n"))
    (tmp_path / "train.2.csv.gz").write_bytes(gzip.compress(b"label,history\n1,5\n"))
    config = job(tmp_path, [HISTORY], missing=["-"], strip_whitespace=True)
    assert counted(config) == tokens_of_batches(config) == [2, 0, 1]


def test_files_that_name_no_columns(tmp_path):
    (tmp_path / "train.csv").write_text("1,1|2|3\n0,4\n")
    config = job(tmp_path, [HISTORY], columns=["label", "history"])
    assert counted(config) == tokens_of_batches(config) == [3, 1]


LISTS = [[1, 2, 3], [], None, [4, None], [5] * 9, [6]]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(LISTS, pa.list_(pa.int64())),
        pa.array(LISTS, pa.large_list(pa.int32())),
        pa.array([None if row is None else [str(value or "") for value in row] for row in LISTS]),
        pa.array(["1|2|3", "", None, "4|", "|".join("5" * 9), "6"]),
        pa.array(["1|2|3", "", None, "4|", "|".join("5" * 9), "6"]).dictionary_encode(),
    ],
    ids=["lists", "large lists", "lists of strings", "strings", "dictionary"],
)
@pytest.mark.parametrize("max_length", [None, 4])
def test_parquet(tmp_path, column, max_length):
    table = pa.table({"label": [0, 1] * 3, "history": column, "user": list(range(6))})
    pq.write_table(table, tmp_path / "train.parquet", row_group_size=4)
    config = job(tmp_path, [PLAIN, {**HISTORY, "max_length": max_length}], format="parquet")
    assert counted(config) == tokens_of_batches(config) == [3, 0, 0, 1, max_length or 9, 1]


def test_libsvm(tmp_path):
    (tmp_path / "train.txt").write_text("1 3:1 17:1.0 abc:1\n0\n\n0 5:1\n")
    config = job(tmp_path, [{"name": "ids", "kind": "sequence"}], format="libsvm")
    assert counted(config) == tokens_of_batches(config) == [3, 0, 1]


@given(st.lists(st.lists(st.sampled_from(["a", "", "-", "bc"]), max_size=5), min_size=1, max_size=8), st.integers(1, 6))
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_counts_as_the_reader_reads_it(tmp_path, rows, max_length):
    lines = [f"1,{'|'.join(values)}" for values in rows]
    (tmp_path / "train.csv").write_text("\n".join(["label,history", *lines]) + "\n")
    config = job(tmp_path, [{**HISTORY, "max_length": max_length}], missing=["-", "a|a"])
    assert counted(config) == tokens_of_batches(config)


def test_no_sequences_no_counts(tmp_path):
    (tmp_path / "train.csv").write_text("label,user,price\n1,u,2\n")
    features = [PLAIN, {"name": "price", "kind": "numeric", "transform": "bucketize", "boundaries": [1.0]}]
    config = job(tmp_path, features)
    assert count_tokens(config, build_index(config)) is None


def test_another_split_and_one_without_files(tmp_path):
    (tmp_path / "train.csv").write_text("label,history\n1,1\n")
    (tmp_path / "valid.csv").write_text("label,history\n1,1|2\n0,3|4|5\n")
    config = job(tmp_path, [HISTORY], valid=["valid.csv"])
    assert counted(config, "valid") == [2, 3]
    assert counted(config, "test") == []


def test_rows_too_long_to_count_count_as_the_longest(tmp_path):
    long = pa.array([[1] * (MOST_COUNTED + 5), [1, 2]], pa.list_(pa.int8()))
    pq.write_table(pa.table({"label": [0, 1], "history": long}), tmp_path / "train.parquet")
    assert counted(job(tmp_path, [HISTORY], format="parquet")) == [65_535, 2]


def test_only_columns_of_sequences_are_read_and_files_are_closed(tmp_path, monkeypatch):
    """A bad value of a column that does not matter here is left to those who read it."""
    (tmp_path / "train.csv").write_text("label,price,history\n1,not a number,1|2\nmaybe,3,1\n")
    config = job(tmp_path, [{"name": "price", "kind": "numeric"}, HISTORY])
    asked, closed = [], []

    class Watched(tokens_module.OpenFiles):
        def get(self, path):
            file = super().get(path)
            original = file.read
            monkeypatch.setattr(file, "read", lambda chunk, names: asked.append(names) or original(chunk, names))
            return file

        def close(self):
            closed.append(True)
            super().close()

    monkeypatch.setattr(tokens_module, "OpenFiles", Watched)
    assert counted(config) == [2, 1]
    assert asked == [["history"]]
    assert closed == [True]


def test_a_file_that_changed_since_it_was_indexed_is_named(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("label,history\n1,1|2\n0,3\n")
    config = job(tmp_path, [HISTORY])
    index = build_index(config)
    path.write_text("label,history\n1,1|2\n")
    with pytest.raises(DataFileError, match=r"train\.csv"):
        count_tokens(config, index)


def test_genres_of_movies(monkeypatch):
    monkeypatch.setenv("GEARTRAIN_DATA", str(sample_folder("ml1m").parent))
    config = load_config(REPOSITORY / "examples" / "ml1m_deepfm.yaml")
    assert counted(config, "valid") == tokens_of_batches(config, "valid")
