from __future__ import annotations

import gzip

import pytest
from data_jobs import bag_keys, job, read_all, text_key

from geartrain.data.index import build_index
from geartrain.errors import BadRowError, DataFileError

IDS = {"name": "ids", "kind": "sequence", "pooling": "sum"}


def batch_of(root, data, feature=IDS, **label):
    (root / "train.txt").write_bytes(data)
    return read_all(job(root, [feature], label or "label", format="libsvm"))


def test_all_ids_of_a_line_are_one_bag(tmp_path):
    batch = batch_of(tmp_path, b"1 3:1 17:1.0 abc:1\n0\n\n  0\t5:1  \r\n1 3:+1")
    assert batch.labels.tolist() == [1.0, 0.0, 0.0, 1.0]
    expected = [["3", "17", "abc"], [], ["5"], ["3"]]
    assert [bag_keys(batch, 0, sample) for sample in range(4)] == [
        [text_key(value, "ids") for value in row] for row in expected
    ]


def test_the_last_ids_are_kept(tmp_path):
    batch = batch_of(tmp_path, b"1 1:1 2:1 3:1\n", {**IDS, "max_length": 2})
    assert batch.keys.tolist() == [text_key("2", "ids"), text_key("3", "ids")]


def test_named_positive_labels(tmp_path):
    batch = batch_of(tmp_path, b"+1 1:1\n-1 1:1\n", column="label", positive=["+1"])
    assert batch.labels.tolist() == [1.0, 0.0]


def test_compressed(tmp_path):
    (tmp_path / "train.gz").write_bytes(gzip.compress(b"1 3:1\n0 4:1\n"))
    batch = read_all(job(tmp_path, [IDS], format="libsvm"))
    assert batch.keys.tolist() == [text_key("3", "ids"), text_key("4", "ids")]


@pytest.mark.parametrize(
    ("data", "row", "column", "value", "expected"),
    [
        (b"1 3:1\n0 4:2\n", 2, "ids", "4:2", "id:value with the value 1"),
        (b"1 3:1\n\n0 4:0.5\n", 2, "ids", "4:0.5", "id:value with the value 1"),
        (b"1 3\n", 1, "ids", "3", "id:value with the value 1"),
        (b"1 :1\n", 1, "ids", ":1", "id:value with the value 1"),
        (b"1 3:1:1\n", 1, "ids", "3:1:1", "id:value with the value 1"),
        (b"1 3:1 # note\n", 1, "ids", "#", "id:value with the value 1"),
        (b"0 3:1\n-1 3:1\n", 2, "label", "-1", "0 or 1"),
        (b"0 3:1\n3:1\n", 2, "label", "3:1", "0 or 1"),
        (b"0 3:1\n1 \xff:1\n", 2, "(whole row)", "1 \\xff:1", "UTF-8 text"),
    ],
)
def test_a_bad_row_names_its_place(tmp_path, data, row, column, value, expected):
    with pytest.raises(BadRowError) as caught:
        batch_of(tmp_path, data)
    assert caught.value.facts == {
        "file": str(tmp_path / "train.txt"), "row": row, "column": column, "value": value, "expected": expected
    }  # fmt: skip


def test_a_line_of_blanks_is_a_bad_row(tmp_path):
    with pytest.raises(BadRowError) as caught:
        batch_of(tmp_path, b"1 3:1\n   \n1 4:1\n")
    assert caught.value.facts["row"] == 2


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "train.txt").write_bytes(b"\n\n")
    with pytest.raises(DataFileError, match="an empty data file"):
        build_index(job(tmp_path, [IDS], format="libsvm"))
