from __future__ import annotations

import csv
import gzip
import io
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_jobs import bag_keys, integer_key, job, no_key, read_all, text_key
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.data import csv as csv_module
from geartrain.data.csv import split_row
from geartrain.data.index import build_index
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader
from geartrain.errors import BadRowError, DataFileError

COLOR = {"name": "color", "kind": "categorical"}
SIZE = {"name": "size", "kind": "numeric"}

ODD_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=6) | st.sampled_from(
    [
        "",
        " ",
        '"',
        '""',
        ",",
        "\ufeff",
        "\ufeffa",
        "NA",
        "null",
        "nan",
        "7",
        "007",
        "\x85",
        "\u2028",
        "'",
        "a\tb",
        "\x00",
    ]
)


def written(
    rows: list[list[str]], separator: str = ",", line_end: str = "\n", quoting: int = csv.QUOTE_MINIMAL
) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=line_end, quoting=quoting).writerows(rows)
    return text.getvalue().encode()


def colors(root: Path, data: bytes, name: str = "train.csv", **settings: object) -> list[int]:
    """The keys of the column `color` of a file with these bytes."""
    (root / name).write_bytes(data)
    return [int(key) for key in read_all(job(root, [COLOR], **settings)).keys]


@given(
    st.lists(st.tuples(st.sampled_from("01"), ODD_TEXT, ODD_TEXT), min_size=1, max_size=8),
    st.sampled_from([",", "\t", ";", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None)
def test_what_was_written_is_read(rows, separator, line_end, quoting, header, last_line_end):
    data = written([list(row) for row in rows], separator, line_end, quoting)
    if not last_line_end:
        data = data[: -len(line_end)]
    layout = {"header": False, "columns": ["label", "color", "shape"]}
    if header:
        data = written([["label", "color", "shape"]], separator, line_end) + data
        layout = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.csv").write_bytes(data)
        shape = {"name": "shape", "kind": "categorical"}
        batch = read_all(job(Path(folder), [COLOR, shape], separator=separator, **layout))
    assert batch.labels.tolist() == [float(label) for label, _, _ in rows]
    assert batch.keys.tolist() == [text_key(color, "color") for _, color, _ in rows] + [
        text_key(shape, "shape") for _, _, shape in rows
    ]


@given(st.lists(ODD_TEXT, min_size=1, max_size=8))
@settings(deadline=None)
def test_csv_and_parquet_of_the_same_strings_give_the_same_keys(values):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        from_csv = colors(root, written([["label", "color"], *(["1", value] for value in values)]))
        table = pa.table({"label": [1] * len(values), "color": values})
        pq.write_table(table, root / "train.parquet")
        (root / "train.csv").unlink()
        assert read_all(job(root, [COLOR], format="parquet")).keys.tolist() == from_csv


@pytest.mark.parametrize("block", [1, 2, 5, 16])
def test_any_parse_block_gives_the_same_values(tmp_path, monkeypatch, block):
    rows = [["label", "color"], ["1", 'a"b'], ["0", "x" * 30], ["1", "\ufeffz"], ["0", ""]]
    monkeypatch.setattr(csv_module, "_PARSE_BLOCK_BYTES", block)
    assert colors(tmp_path, written(rows)) == [text_key(row[1], "color") for row in rows[1:]]


def test_categories_are_strings_whatever_they_look_like(tmp_path):
    keys = colors(tmp_path, b"label,color\n1,7\n1,07\n1,7.0\n1,-1\n1,7\n")
    assert keys == [text_key(value, "color") for value in ("7", "07", "7.0", "-1", "7")]
    assert keys[0] != integer_key(7, "color")


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbflabel,color\n1,red\n0,blue\n",
        b"label,color\r\n1,red\r\n0,blue\r\n",
        b"label,color\n1,red\n0,blue",
        b"label,color\n1,red\n0,blue\n\n\r\n\n",
        b"\nlabel,color\n\n1,red\n\r\n0,blue\n",
        b'"label","color"\n"1","red"\n0,"blue"\n',
        b"color,other,label\nred,x,1\nblue,y,0\n",
    ],
    ids=["mark", "crlf", "no last newline", "blank end", "blank lines", "quoted", "other order"],
)
def test_the_same_rows_in_many_dresses(tmp_path, data):
    (tmp_path / "train.csv").write_bytes(data)
    batch = read_all(job(tmp_path, [COLOR]))
    assert batch.labels.tolist() == [1.0, 0.0]
    assert batch.keys.tolist() == [text_key("red", "color"), text_key("blue", "color")]


def test_a_mark_before_headerless_rows_is_no_part_of_the_first_value(tmp_path):
    keys = colors(tmp_path, b"\xef\xbb\xbfred,1\nblue,0\n", columns=["color", "label"])
    assert keys == [text_key("red", "color"), text_key("blue", "color")]


def test_whitespace_and_missing_tokens(tmp_path):
    data = b"label, color\n1, red\n1,red \n1, ?\n1,\n1,  \n"
    keys = colors(tmp_path, data, strip_whitespace=True, missing=["", "?"])
    assert keys == [text_key("red", "color")] * 2 + [no_key("color")] * 3
    raw = colors(tmp_path, data.replace(b" color", b"color"))
    assert raw == [
        *(text_key(value, "color") for value in (" red", "red ", " ?")),
        no_key("color"),
        text_key("  ", "color"),
    ]


def test_files_of_a_split_may_order_their_columns_differently(tmp_path):
    (tmp_path / "train1.csv").write_bytes(b"label,color\n1,red\n")
    (tmp_path / "train2.csv.gz").write_bytes(gzip.compress(b"color,label\nblue,0\n"))
    batch = read_all(job(tmp_path, [COLOR]))
    assert batch.labels.tolist() == [1.0, 0.0]
    assert batch.keys.tolist() == [text_key("red", "color"), text_key("blue", "color")]


def test_compressed_files_are_read_as_they_are(tmp_path):
    data = b"label,color\n" + b"".join(b"1,%d\n" % number for number in range(1000))
    plain = colors(tmp_path, data)
    (tmp_path / "train.csv").unlink()
    half = len(data) // 2
    assert colors(tmp_path, gzip.compress(data[:half]) + gzip.compress(data[half:]), "train.csv.gz") == plain
    (tmp_path / "train.csv.gz").unlink()
    assert colors(tmp_path, pa.Codec("zstd").compress(data).to_pybytes(), "train.csv.zst") == plain


def test_sequences_split_keep_the_last_and_drop_the_empty(tmp_path):
    (tmp_path / "train.csv").write_bytes(b"label,tags\n1,a|b|c|d\n1,\n1,|a||b|\n1,x\n1,?|y\n")
    tags = {"name": "tags", "kind": "sequence", "max_length": 3}
    batch = read_all(job(tmp_path, [tags], missing=["", "?"]))
    expected = [["b", "c", "d"], [], ["a", "b"], ["x"], ["y"]]
    assert [bag_keys(batch, 0, sample) for sample in range(5)] == [
        [text_key(tag, "tags") for tag in sample] for sample in expected
    ]


@pytest.mark.parametrize(
    ("data", "row", "column", "value", "expected"),
    [
        (b"1,red,2\n2,red,2\n", 2, "label", "2", "0 or 1"),
        (b"1,red,2\n\n,red,2\n", 2, "label", "", "0 or 1"),
        (b"yes,red,2\n", 1, "label", "yes", "0 or 1"),
        (b"nan,red,2\n", 1, "label", "nan", "0 or 1"),
        (b"1,red,2\n1,red,x\n", 2, "size", "x", "a number"),
        (b"1,red, 2\n", 1, "size", " 2", "a number"),
        (b"1,red,1_0\n", 1, "size", "1_0", "a number"),
        (b"1,red,2\n1,red,nan\n", 2, "size", "nan", "a finite number"),
        (b"1,red,-inf\n", 1, "size", "-inf", "a finite number"),
        (b"1,red,1e400\n", 1, "size", "1e400", "a finite number"),
        (b"1,red,1e39\n", 1, "size", 1e39, "a number in the range of float32"),
        (b"1,red,2\n1,red\n", 2, "size", "2 columns", "3 columns"),
        (b"1,red,2\n1\n", 2, "color", "1 columns", "3 columns"),
        (b"1,red,2\n1,red,2,3\n", 2, "size", "4 columns", "3 columns"),
        (b'1,"re\nd",2\n1,red\n', 1, "(whole row)", '1,"re', "quotes closed in the same line"),
        (b'1,red,2\n1,"red,2\n', 2, "(whole row)", '1,"red,2', "quotes closed in the same line"),
        (b'1,"red,2\n1,red",2\n', 1, "(whole row)", '1,"red,2', "quotes closed in the same line"),
        (b"1,red,2\n1,r\red,2\n", 2, "(whole row)", "1,r\red,2", "no carriage return inside a row"),
        (b"1,red,2\n1,r\xffd,2\n", 2, "color", "r\\xffd", "UTF-8 text"),
    ],
)
def test_a_bad_row_names_its_place(tmp_path, data, row, column, value, expected):
    path = tmp_path / "train.csv"
    path.write_bytes(b"label,color,size\n" + data)
    with pytest.raises(BadRowError) as caught:
        read_all(job(tmp_path, [COLOR, SIZE]))
    assert caught.value.facts == {
        "file": str(path), "row": row, "column": column, "value": value, "expected": expected
    }  # fmt: skip
    assert str(path) in caught.value.message
    assert f"row {row}" in caught.value.message
    assert "\n" not in caught.value.message


def test_bytes_that_nobody_reads_need_not_be_text(tmp_path):
    assert colors(tmp_path, b"label,color,note\n1,red,\xff\n") == [text_key("red", "color")]


def test_rows_are_counted_over_all_chunks_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("geartrain.data.textfile.MAX_CHUNK_ROWS", 2)
    path = tmp_path / "train.csv"
    path.write_bytes(b"label,color\n1,a\n\n0,b\n1,c\n0,d\n3,e\n")
    config = job(tmp_path, [COLOR])
    assert [chunk.num_rows for chunk in build_index(config).train] == [2, 2, 1]
    with pytest.raises(BadRowError) as caught:
        read_all(config)
    assert caught.value.facts["row"] == 5


def test_a_file_that_changed_behind_the_index_is_refused(tmp_path):
    path = tmp_path / "train.csv"
    path.write_bytes(b"label,color\n1,a\n0,b\n")
    config = job(tmp_path, [COLOR])
    index = build_index(config)
    path.write_bytes(b"label,color\n1,a\n")
    reader = SplitReader(index, config, "train")
    with pytest.raises(DataFileError, match="longer when it was indexed"):
        reader.batch(PassOrder(reader.chunk_rows, 1, 0, False), 0, 2)
    reader.close()


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("", [""]),
        ("a,b", ["a", "b"]),
        ("a,", ["a", ""]),
        ('"a,b",c', ["a,b", "c"]),
        ('"a""b",c', ['a"b', "c"]),
        ('"a"b,c', ["ab", "c"]),
        ('a"b,c', ['a"b', "c"]),
        ('""', [""]),
        ('"a,b', None),
        ('a,"b""', None),
    ],
)
def test_the_slow_look_at_a_row_follows_the_parser(line, fields):
    assert split_row(line, ",") == fields
