from __future__ import annotations

import gzip

import pytest
from data_jobs import job, read_all

from geartrain.data import textfile
from geartrain.data.index import build_index
from geartrain.data.textfile import TextFile
from geartrain.errors import DataFileError

ROWS = [b"1,r%d" % number for number in range(20)]
COLOR = {"name": "color", "kind": "categorical"}


@pytest.mark.parametrize("max_rows", [1, 7, 100])
@pytest.mark.parametrize("max_bytes", [50, 1000])
@pytest.mark.parametrize("block", [1, 4, 1 << 20])
@pytest.mark.parametrize("head", [b"", b"\xef\xbb\xbf", b"\r\n"])
def test_chunks_of_any_size_hold_the_same_rows(tmp_path, monkeypatch, max_rows, max_bytes, block, head):
    monkeypatch.setattr(textfile, "MAX_CHUNK_ROWS", max_rows)
    monkeypatch.setattr(textfile, "MAX_CHUNK_BYTES", max_bytes)
    monkeypatch.setattr(textfile, "_BLOCK_BYTES", block)
    (tmp_path / "train.csv").write_bytes(head + b"label,color\n" + b"\n".join(ROWS))
    file = TextFile(str(tmp_path / "train.csv"))
    ranges = file.scan(has_header=True)
    assert b"".join(file.read(part.start, part.stop) for part in ranges) == b"\n".join(ROWS)
    assert sum(part.num_rows for part in ranges) == 20
    assert max(part.num_rows for part in ranges) <= max_rows
    file.close()


def test_a_headerless_file_starts_behind_its_mark(tmp_path):
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfa\nb\n")
    file = TextFile(str(tmp_path / "x"))
    (part,) = file.scan(has_header=False)
    assert file.read(part.start, part.stop) == b"a\nb\n"
    file.close()


def test_a_compressed_file_is_spooled_once_and_leaves_no_file_behind(tmp_path, monkeypatch):
    path = tmp_path / "train.csv.gz"
    path.write_bytes(gzip.compress(b"label,color\n" + b"\n".join(ROWS)))
    spooled = []
    original = textfile._spool
    monkeypatch.setattr(textfile, "_spool", lambda where: spooled.append(where) or original(where))
    monkeypatch.setattr(textfile, "MAX_CHUNK_ROWS", 3)
    monkeypatch.setattr(textfile.tempfile, "tempdir", str(tmp_path))
    batch = read_all(job(tmp_path, [COLOR], train=["train.csv.gz"]))
    assert batch.num_samples == 20
    assert spooled == [str(path)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.csv.gz"]


GOOD = gzip.compress(b"label,color\n1,red\n" * 100)


@pytest.mark.parametrize(
    "data",
    [b"label,color\n1,red\n", GOOD[:-20], GOOD[:-6] + bytes([GOOD[-6] ^ 255]) + GOOD[-5:]],
    ids=["not compressed", "cut off", "damaged"],
)
def test_a_broken_compressed_file_is_refused_before_training(tmp_path, data):
    path = tmp_path / "train.csv.gz"
    path.write_bytes(data)
    with pytest.raises(DataFileError) as caught:
        build_index(job(tmp_path, [COLOR]))
    assert caught.value.facts["file"] == str(path)
    assert caught.value.facts["expected"] == "a readable gzip file"


def test_a_file_that_vanished_is_named(tmp_path):
    file = TextFile(str(tmp_path / "gone.csv"))
    with pytest.raises(DataFileError, match=r"gone\.csv: expected a readable file: No such file"):
        file.scan(has_header=False)


def test_a_file_without_line_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(textfile, "MAX_CHUNK_BYTES", 1000)
    (tmp_path / "train.csv").write_bytes(b"x" * 2000)
    with pytest.raises(DataFileError, match="no line end in the first 2000 bytes"):
        build_index(job(tmp_path, [COLOR]))
