from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_jobs import bag_keys, integer_key, job, no_key, read_all, text_key

from geartrain.data.index import build_index
from geartrain.errors import BadRowError, DataFileError

ITEM = {"name": "item", "kind": "categorical"}
PRICE = {"name": "price", "kind": "numeric"}
HISTORY = {"name": "history", "kind": "sequence", "max_length": 2}


def batch_of(root, features, row_group_size=None, **columns):
    rows = len(next(iter(columns.values())))
    table = pa.table({"label": pa.array([1] * rows, pa.int8()), **columns})
    pq.write_table(table, root / "train.parquet", row_group_size=row_group_size)
    return read_all(job(root, features, format="parquet"))


SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("width", [*SIGNED, *UNSIGNED], ids=str)
def test_an_integer_has_one_key_whatever_its_width(tmp_path, width):
    bits = width.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if width in SIGNED else (0, 2**bits - 1)
    values = [0, 7, 100, low, high]
    keys = batch_of(tmp_path, [ITEM], item=pa.array(values, width)).keys.tolist()
    assert keys == [integer_key(value, "item") for value in values]


def test_negative_ids_are_distinct_from_all_others(tmp_path):
    values = [-1, 1, -(2**63), 2**63 - 1, 0]
    keys = batch_of(tmp_path, [ITEM], item=pa.array(values)).keys
    assert len(set(keys.tolist())) == 5


STRINGS = ["red", "", None, "blue", "7"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(STRINGS),
        pa.array(STRINGS, pa.large_string()),
        pa.array(STRINGS).dictionary_encode(),
    ],
    ids=["string", "large_string", "dictionary"],
)
def test_strings_of_every_storage(tmp_path, column):
    keys = batch_of(tmp_path, [ITEM], item=column).keys.tolist()
    assert keys == [no_key("item") if not value else text_key(value, "item") for value in STRINGS]


def test_missing_integers_share_a_category_of_their_own(tmp_path):
    keys = batch_of(tmp_path, [ITEM], item=pa.array([0, None, 5, None])).keys.tolist()
    assert keys == [integer_key(0, "item"), no_key("item"), integer_key(5, "item"), no_key("item")]
    encoded = batch_of(tmp_path, [ITEM], item=pa.array([0, None, 5, None]).dictionary_encode()).keys.tolist()
    assert encoded == keys


def test_booleans_are_the_integers_0_and_1(tmp_path):
    keys = batch_of(tmp_path, [ITEM], item=pa.array([True, False, None])).keys.tolist()
    assert keys == [integer_key(1, "item"), integer_key(0, "item"), no_key("item")]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list], ids=["list", "large_list"])
def test_lists_are_bags(tmp_path, kind):
    rows = [[1, 2, 3], [], None, [-4], [None, 5, None]]
    batch = batch_of(tmp_path, [HISTORY], history=pa.array(rows, kind(pa.int32())))
    expected = [[2, 3], [], [], [-4], [5]]
    assert [bag_keys(batch, 0, sample) for sample in range(5)] == [
        [integer_key(value, "history") for value in row] for row in expected
    ]


def test_lists_of_strings_and_strings_with_separators_are_the_same_bags(tmp_path):
    lists = batch_of(tmp_path, [HISTORY], history=pa.array([["a", "", "b"], None, ["c", "d", "e"]]))
    texts = batch_of(tmp_path, [HISTORY], history=pa.array(["a||b", None, "c|d|e"]))
    encoded = batch_of(tmp_path, [HISTORY], history=pa.array(["a||b", None, "c|d|e"]).dictionary_encode())
    for batch in (lists, texts, encoded):
        assert batch.keys.tolist() == [text_key(value, "history") for value in "abde"]
        assert batch.bag_offsets.tolist() == [0, 2, 2, 4]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, -3], pa.int32()),
        pa.array([1.0, None, -3.0], pa.float32()),
        pa.array([1.0, float("nan"), -3.0], pa.float64()),
        pa.array(np.array([1, np.nan, -3], np.float16)),
    ],
    ids=["int", "float null", "float nan", "half"],
)
def test_numbers_and_what_is_missing(tmp_path, column):
    batch = batch_of(tmp_path, [ITEM, PRICE], item=pa.array([1, 2, 3]), price=column)
    assert batch.numeric.tolist() == [[1.0, 0.0], [0.0, 1.0], [-3.0, 0.0]]
    assert batch.numeric.dtype == np.float32


def test_big_integers_and_booleans_are_numbers(tmp_path):
    price = pa.array([2**60 + 1, 0, -(2**60)])
    assert batch_of(tmp_path, [ITEM, PRICE], item=price, price=price).numeric[:, 0].tolist() == [2.0**60, 0, -(2.0**60)]
    flags = pa.array([True, False, True])
    assert batch_of(tmp_path, [ITEM, PRICE], item=price, price=flags).numeric[:, 0].tolist() == [1, 0, 1]


def test_infinity_is_a_bad_row(tmp_path):
    with pytest.raises(BadRowError) as caught:
        batch_of(tmp_path, [ITEM, PRICE], 2, item=pa.array([1, 2, 3, 4]), price=pa.array([1.0, 2, 3, float("inf")]))
    assert {name: caught.value.facts[name] for name in ("row", "column", "value")} == {
        "row": 4, "column": "price", "value": "inf"
    }  # fmt: skip


@pytest.mark.parametrize(
    "label",
    [
        pa.array([True, False]),
        pa.array([1, 0], pa.uint8()),
        pa.array([1.0, 0.0]),
        pa.array(["1", "0"]),
        pa.array(["1", "0"]).dictionary_encode(),
    ],
    ids=["bool", "int", "float", "string", "dictionary"],
)
def test_labels_of_every_type(tmp_path, label):
    pq.write_table(pa.table({"label": label, "item": [1, 2]}), tmp_path / "train.parquet")
    assert read_all(job(tmp_path, [ITEM], format="parquet")).labels.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("label", "row", "value"),
    [
        (pa.array([1, 0, 2]), 3, 2),
        (pa.array([1.0, 0.5, 0.0]), 2, 0.5),
        (pa.array([1.0, float("nan"), 0.0]), 2, "nan"),
        (pa.array([None, 1, 0]), 1, ""),
        (pa.array(["1", "true", "0"]), 2, "true"),
    ],
)
def test_bad_labels(tmp_path, label, row, value):
    pq.write_table(pa.table({"label": label, "item": [1, 2, 3]}), tmp_path / "train.parquet")
    with pytest.raises(BadRowError) as caught:
        read_all(job(tmp_path, [ITEM], format="parquet"))
    assert (caught.value.facts["row"], caught.value.facts["value"]) == (row, value)


def test_positive_labels_are_named_values(tmp_path):
    for label in (pa.array(["yes", "no", "maybe"]), pa.array(["yes", "no", "maybe"]).dictionary_encode()):
        pq.write_table(pa.table({"label": label, "item": [1, 2, 3]}), tmp_path / "train.parquet")
        config = job(tmp_path, [ITEM], {"column": "label", "positive": ["yes", "maybe"]}, format="parquet")
        assert read_all(config).labels.tolist() == [1.0, 0.0, 1.0]
    pq.write_table(pa.table({"label": [4, 5, 1], "item": [1, 2, 3]}), tmp_path / "train.parquet")
    config = job(tmp_path, [ITEM], {"column": "label", "positive": [4, 5]}, format="parquet")
    assert read_all(config).labels.tolist() == [1.0, 1.0, 0.0]


def test_a_chunk_is_a_row_group(tmp_path):
    batch_of(tmp_path, [ITEM], 4, item=pa.array(range(10)))
    index = build_index(job(tmp_path, [ITEM], format="parquet"))
    assert [(chunk.first_row, chunk.num_rows, chunk.row_group) for chunk in index.train] == [
        (0, 4, 0), (4, 4, 1), (8, 2, 2)
    ]  # fmt: skip


def test_only_needed_columns_are_read_and_odd_names_are_fine(tmp_path):
    odd = {"name": "a.b c", "kind": "categorical"}
    structs = pa.array([{"x": 1}, {"x": 2}])
    batch = batch_of(tmp_path, [odd], a=structs, **{"a.b c": pa.array([5, 6])})
    assert batch.keys.tolist() == [integer_key(5, "a.b c"), integer_key(6, "a.b c")]


@pytest.mark.parametrize(
    ("feature", "column", "expected"),
    [
        (ITEM, pa.array([1.0, 2.0]), "a column of integers or strings"),
        (ITEM, pa.array([[1], [2]]), "a column of integers or strings"),
        (ITEM, pa.array([b"x", b"y"]), "a column of integers or strings"),
        (PRICE, pa.array(["1", "2"]), "a column of numbers"),
        (PRICE, pa.array([[1], [2]]), "a column of numbers"),
        (HISTORY, pa.array([1, 2]), "a column of lists or strings"),
        (HISTORY, pa.array([[1.5], [2.5]]), "a column of integers or strings"),
        (HISTORY, pa.array([[[1]], [[2]]]), "a column of integers or strings"),
    ],
)
def test_a_type_that_cannot_be_the_feature_is_refused_before_training(tmp_path, feature, column, expected):
    id_column = {"name": "id", "kind": "categorical"}
    table = pa.table({"label": [0, 1], "id": [1, 2], feature["name"]: column})
    pq.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(DataFileError) as caught:
        build_index(job(tmp_path, [id_column, feature], format="parquet"))
    assert caught.value.facts["expected"] == expected
    assert caught.value.facts["field"] == "features.1.name"
    assert caught.value.facts["value"].replace("element", "item") == str(column.type)


@pytest.mark.parametrize("label", [pa.array([[1], [0]]), pa.array([b"1", b"0"])])
def test_a_type_that_cannot_be_a_label_is_refused(tmp_path, label):
    pq.write_table(pa.table({"label": label, "item": [1, 2]}), tmp_path / "train.parquet")
    with pytest.raises(DataFileError) as caught:
        build_index(job(tmp_path, [ITEM], format="parquet"))
    assert caught.value.facts["field"] == "label.column"


def test_positive_with_a_column_of_numbers_is_refused(tmp_path):
    pq.write_table(pa.table({"label": [0.0, 1.0], "item": [1, 2]}), tmp_path / "train.parquet")
    with pytest.raises(DataFileError) as caught:
        build_index(job(tmp_path, [ITEM], {"column": "label", "positive": ["1.0"]}, format="parquet"))
    assert caught.value.facts["field"] == "label.positive"


@pytest.mark.parametrize("data", [b"", b"PAR1 no PAR1", b"label,item\n1,2\n"])
def test_a_file_that_is_no_parquet_is_refused(tmp_path, data):
    (tmp_path / "train.parquet").write_bytes(data)
    with pytest.raises(DataFileError, match="expected a readable parquet file") as caught:
        build_index(job(tmp_path, [ITEM], format="parquet"))
    assert caught.value.facts["file"] == str(tmp_path / "train.parquet")


def test_damaged_pages_are_an_error_of_the_file(tmp_path):
    batch_of(tmp_path, [ITEM], item=pa.array(np.arange(5000)))
    path = tmp_path / "train.parquet"
    data = bytearray(path.read_bytes())
    data[4:4000] = b"\xff" * 3996
    path.write_bytes(data)
    with pytest.raises(DataFileError, match="expected a readable parquet file"):
        read_all(job(tmp_path, [ITEM], format="parquet"))


def test_names_that_are_no_utf8_are_an_error_of_the_file(tmp_path):
    batch_of(tmp_path, [ITEM], item=pa.array([1]), other=pa.array([1]))
    path = tmp_path / "train.parquet"
    path.write_bytes(path.read_bytes().replace(b"other", b"oth\xffr"))
    with pytest.raises(DataFileError, match="expected a readable parquet file"):
        build_index(job(tmp_path, [ITEM], format="parquet"))
