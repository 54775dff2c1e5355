from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.support.unlike_data import write_beauty, write_frappe
from geartrain.errors import DataFileError


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEARTRAIN_DATA", str(tmp_path))
    for name in ("frappe", "beauty_seq"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_rows_begin_again_where_there_are_too_few(data: Path) -> None:
    with gzip.open(data / "frappe" / "train.csv.gz", "wt") as file:
        file.write("label,user\n1,a\n0,b\n")
    fields = write_frappe(data / "out", 5)
    assert (data / "out" / "train.csv").read_text() == "label,user\n1,a\n0,b\n1,a\n0,b\n1,a\n"
    assert fields["data"]["root"] == str(data / "out")


def test_any_number_of_rows_has_the_same_lengths(data: Path) -> None:
    """The first users have long histories, the others short ones: still every stretch of rows has both."""
    visits = [(user, visit) for user in range(10) for visit in range(120)]
    visits += [(user, visit) for user in range(10, 400) for visit in range(3)]
    (data / "beauty_seq" / "beauty.txt").write_text("".join(f"{user} {visit}\n" for user, visit in visits))
    num_rows = 10 * 119 + 390 * 2
    write_beauty(data / "out", num_rows)
    rows = (data / "out" / "train.csv").read_text().splitlines()[1:]
    lengths = [len(row.split(",")[2].split("|")) for row in rows]
    assert sorted(lengths) == sorted([*range(1, 51)] * 10 + [50] * 690 + [1, 2] * 390)
    mean = sum(lengths) / num_rows
    for start in range(0, num_rows - 200, 100):
        assert sum(lengths[start : start + 200]) / 200 == pytest.approx(mean, rel=0.03)


def test_data_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARTRAIN_DATA", str(tmp_path))
    with pytest.raises(DataFileError, match=r"frappe/train.csv.gz: .* set GEARTRAIN_DATA"):
        write_frappe(tmp_path / "out", 1)
