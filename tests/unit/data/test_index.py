from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_jobs import job
from hypothesis import given
from hypothesis import strategies as st

from geartrain.data.chunks import Chunk, DatasetIndex
from geartrain.data.index import build_index, find_files
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader
from geartrain.errors import BadRowError, ConfigError, DataFileError, WireError

COLOR = {"name": "color", "kind": "categorical"}
ROWS = "label,color\n1,red\n0,blue\n"


def failure(config, **options):
    with pytest.raises(DataFileError) as caught:
        build_index(config, **options)
    assert "\n" not in caught.value.message
    return caught.value


def test_files_come_in_the_config_order_and_a_glob_in_order_of_name(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("train10.csv", "train2.csv", "deep/b.csv", "deep/er/a.csv", "z.csv", ".train.csv"):
        (tmp_path / name).write_text(ROWS)
    config = job(tmp_path, [COLOR], train=["z.csv", "train*.csv", "deep/**/*.csv"])
    found = [os.path.relpath(path, tmp_path) for path in find_files(config, "train")]
    assert found == ["z.csv", "train10.csv", "train2.csv", "deep/b.csv", "deep/er/a.csv"]
    assert build_index(config).num_rows("train") == 10


def test_a_file_whose_name_looks_like_a_glob_is_taken_as_it_is(tmp_path):
    (tmp_path / "a[1].csv").write_text(ROWS)
    assert len(find_files(job(tmp_path, [COLOR], train=["a[1].csv"]), "train")) == 1


def test_three_splits(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.csv").write_text(ROWS)
    (tmp_path / "test.csv").write_text(ROWS + "1,green\n")
    index = build_index(job(tmp_path, [COLOR], valid=["valid.csv"], test=["test.csv"]))
    assert [index.num_rows(split) for split in ("train", "valid", "test")] == [2, 2, 3]
    assert index.key_kinds == {"color": "string"}
    only = build_index(job(tmp_path, [COLOR], valid=["gone.csv"], test=["test.csv"]), splits=["test"])
    assert [only.num_rows(split) for split in ("train", "valid", "test")] == [0, 0, 3]


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_missing_file_is_named(tmp_path, split):
    (tmp_path / "train.csv").write_text(ROWS)
    facts = failure(job(tmp_path, [COLOR], **{split: ["gone.csv"]})).facts
    assert facts["field"] == f"data.{split}.0"
    assert facts["file"] == str(tmp_path / "gone.csv")
    assert facts["value"] == "no such file"


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "train").mkdir()
    assert failure(job(tmp_path, [COLOR], train=["train"])).facts["value"] == "a folder"


def test_a_glob_without_a_match_is_named(tmp_path):
    (tmp_path / "train.csv").write_text(ROWS)
    (tmp_path / "x.parquet").mkdir()
    facts = failure(job(tmp_path, [COLOR], train=["train.csv", "*.parquet"])).facts
    assert facts["field"] == "data.train.1"
    assert facts["expected"] == "a glob that matches at least one file"
    assert facts["value"] == "*.parquet"


def test_a_file_named_twice_is_refused(tmp_path):
    (tmp_path / "train.csv").write_text(ROWS)
    assert failure(job(tmp_path, [COLOR], train=["train.csv", "*.csv"])).facts["field"] == "data.train.1"


def test_a_glob_does_not_follow_links_out_of_the_root(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.csv").write_text(ROWS)
    (root / "train.csv").symlink_to(outside / "secret.csv")
    config = job(root, [COLOR])
    with pytest.raises(ConfigError, match="outside the allowed roots"):
        build_index(config)
    assert build_index(config, allowed_roots=[outside]).num_rows("train") == 2


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"], ids=["no byte", "blank", "mark"])
@pytest.mark.parametrize("split", ["train", "valid"])
def test_an_empty_file_is_refused(tmp_path, data, split):
    (tmp_path / "train.csv").write_text(ROWS)
    (tmp_path / f"{split}.csv").write_bytes(data)
    error = failure(job(tmp_path, [COLOR], valid=["valid.csv"] if split == "valid" else []))
    assert "empty" in error.message
    assert error.facts["file"] == str(tmp_path / f"{split}.csv")


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_file_with_a_header_only_is_empty(tmp_path, split):
    (tmp_path / "train.csv").write_text(ROWS)
    (tmp_path / f"{split}.csv").write_text("label,color\n")
    facts = failure(job(tmp_path, [COLOR], test=["test.csv"] if split == "test" else [])).facts
    assert facts["value"] == "an empty data file"
    assert facts["field"] == f"data.{split}"


def test_an_empty_headerless_file_is_empty(tmp_path):
    (tmp_path / "train.csv").write_text("")
    assert failure(job(tmp_path, [COLOR], columns=["label", "color"])).facts["value"] == "an empty data file"


def test_a_parquet_file_without_rows_is_empty(tmp_path):
    pq.write_table(
        pa.table({"label": pa.array([], pa.int64()), "color": pa.array([], pa.string())}), tmp_path / "train"
    )
    assert failure(job(tmp_path, [COLOR], format="parquet")).facts["value"] == "an empty data file"


def test_missing_columns_are_listed(tmp_path):
    (tmp_path / "train.csv").write_text("label,other\n1,x\n")
    features = [COLOR, {"name": "other", "kind": "categorical"}, {"name": "size", "kind": "numeric"}]
    facts = failure(job(tmp_path, features)).facts
    assert facts["columns"] == ["color", "size"]
    assert facts["field"] == "features.0.name"
    assert facts["value"] == "label, other"


def test_an_absent_label_is_named(tmp_path):
    (tmp_path / "train.csv").write_text("color\nred\n")
    error = failure(job(tmp_path, [COLOR], "click"))
    assert error.facts["field"] == "label.column"
    assert "the label column click" in error.message


def test_a_split_without_the_label_can_be_read_for_prediction(tmp_path):
    (tmp_path / "test.csv").write_text("color\nred\n")
    config = job(tmp_path, [COLOR], train=["gone.csv"], test=["test.csv"])
    index = build_index(config, splits=["test"], labeled=False)
    reader = SplitReader(index, config, "test", labeled=False)
    batch = reader.batch(PassOrder(reader.chunk_rows, 1, 0, False), 0, 1)
    assert batch.labels.tolist() == [0.0]
    reader.close()


def test_a_column_that_is_there_twice_is_refused_only_if_it_is_needed(tmp_path):
    (tmp_path / "train.csv").write_text("label,color,x,x\n1,red,1,2\n")
    assert build_index(job(tmp_path, [COLOR])).num_rows("train") == 1
    facts = failure(job(tmp_path, [{"name": "x", "kind": "categorical"}])).facts
    assert facts["expected"] == "one column x"


def test_a_wrong_number_of_columns_without_header_is_told_at_once(tmp_path):
    (tmp_path / "train.csv").write_text("1,red,5\n")
    error = failure(job(tmp_path, [COLOR], columns=["label", "color"]))
    assert error.facts["value"] == "its first row has 3"


def test_a_wrong_separator_shows_in_the_header(tmp_path):
    (tmp_path / "train.csv").write_text("label;color\n1;red\n")
    assert failure(job(tmp_path, [COLOR])).facts["value"] == "label;color"


@pytest.mark.parametrize("header", [b'label,"color\n1,red\n', b"label,color,\xff\n1,red,x\n"])
def test_a_header_that_cannot_be_read(tmp_path, header):
    (tmp_path / "train.csv").write_bytes(header)
    assert failure(job(tmp_path, [COLOR])).facts["file"] == str(tmp_path / "train.csv")


@pytest.mark.parametrize("as_columns", [True, False])
def test_a_table_holds_integers_or_strings_not_both(tmp_path, as_columns):
    features = [{"name": "a", "kind": "categorical", "table": "t"}, {"name": "b", "kind": "categorical", "table": "t"}]
    if as_columns:
        pq.write_table(pa.table({"label": [1], "a": [1], "b": ["1"]}), tmp_path / "train.parquet")
    else:
        pq.write_table(pa.table({"label": [1], "a": [1], "b": [1]}), tmp_path / "train1.parquet")
        pq.write_table(pa.table({"label": [1], "a": ["1"], "b": ["1"]}), tmp_path / "train2.parquet")
    facts = failure(job(tmp_path, features, format="parquet")).facts
    assert facts["field"] == ("features.1.name" if as_columns else "features.0.name")
    assert (facts["expected"], facts["value"]) == ("integers", "strings")


def test_integers_of_unlike_width_share_a_table(tmp_path):
    features = [{"name": "a", "kind": "categorical", "table": "t"}, {"name": "b", "kind": "sequence", "table": "t"}]
    columns = {"label": [1], "a": pa.array([1], pa.int8()), "b": pa.array([[1]], pa.list_(pa.int64()))}
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    assert build_index(job(tmp_path, features, format="parquet")).key_kinds == {"t": "integer"}


SIZE = {"name": "size", "kind": "numeric", "transform": "standard"}


def test_standard_statistics_come_from_all_train_files(tmp_path, monkeypatch):
    monkeypatch.setattr("geartrain.data.textfile.MAX_CHUNK_ROWS", 3)
    values = [1e9 + 3.0, 1e9 - 5.0, 1e9, 1e9 + 0.5, 1e9 + 8, None, 1e9 - 2, 1e9]
    rows = [f"1,red,{'' if value is None else value}" for value in values]
    (tmp_path / "train1.csv").write_text("label,color,size\n" + "\n".join(rows[:5]))
    (tmp_path / "train2.csv").write_text("label,color,size\n" + "\n".join(rows[5:]))
    (tmp_path / "valid.csv").write_text("label,color,size\n1,red,77\n")
    mean, deviation = build_index(job(tmp_path, [COLOR, SIZE], valid=["valid.csv"])).standard["size"]
    known = np.array([value for value in values if value is not None])
    assert mean == pytest.approx(known.mean(), rel=1e-12)
    assert deviation == pytest.approx(known.std(), rel=1e-9)


@pytest.mark.parametrize(("cells", "expected"), [(["4", "4"], (4.0, 1.0)), (["", ""], (0.0, 1.0))])
def test_a_constant_or_absent_number_divides_nothing_by_zero(tmp_path, cells, expected):
    (tmp_path / "train.csv").write_text("label,color,size\n" + "".join(f"1,red,{cell}\n" for cell in cells))
    assert build_index(job(tmp_path, [COLOR, SIZE])).standard["size"] == expected


def test_given_statistics_are_kept_and_nothing_is_scanned(tmp_path):
    (tmp_path / "train.csv").write_text("label,color,size\n1,red,not a number\n")
    config = job(tmp_path, [COLOR, SIZE])
    assert build_index(config, standard={"size": (1.0, 2.0)}).standard == {"size": (1.0, 2.0)}
    with pytest.raises(BadRowError):
        build_index(config)


NUMBERS = st.integers(0, 2**40)
CHUNKS = st.lists(
    st.builds(Chunk, st.sampled_from(["/a", "/b"]), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(-1, 9)), max_size=4
).map(tuple)
STATISTICS = st.dictionaries(st.text(max_size=3), st.tuples(st.floats(-9, 9), st.floats(0.5, 9)), max_size=2)


@given(st.builds(DatasetIndex, CHUNKS, CHUNKS, CHUNKS, STATISTICS, st.just({"t": "string"})))
def test_an_index_survives_the_wire(index):
    assert DatasetIndex.from_dict(json.loads(json.dumps(index.to_dict()))) == index


@pytest.mark.parametrize(
    "fields",
    [{}, {"files": [], "train": [[0, 1, 2, 3, 4, 5]], "valid": [], "test": [], "standard": {}, "key_kinds": {}}],
)
def test_what_is_no_index_is_refused(fields):
    with pytest.raises(WireError):
        DatasetIndex.from_dict(fields)


def test_a_split_has_one_of_three_names():
    with pytest.raises(ValueError, match="expected one of train, valid, test"):
        DatasetIndex().num_rows("dev")


def test_statistics_beyond_all_numbers_are_refused(tmp_path):
    (tmp_path / "train.csv").write_text("label,color,size\n1,red,1e308\n0,red,-1e308\n")
    with pytest.raises(DataFileError, match="column size: expected numbers whose mean and deviation are finite"):
        build_index(job(tmp_path, [COLOR, SIZE]))
