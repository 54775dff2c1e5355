from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.support.lines import Line
from benchmarks.support.pictures import draw, main

UNLIKE: Line = {
    "name": "3:2:1:1",
    "samples_per_s": 13_650.0,
    "sum_of_solo_samples_per_s": 14_000.0,
    "throughput_over_sum_of_solo": 0.975,
    "equal_shares_samples_per_s": 7_800.0,
}
CONVERGENCE: Line = {
    "name": "hybrid",
    "auc_mean": 0.983,
    "sync_auc_mean": 0.9834,
    "limit": 0.001,
    "aucs": [0.982, 0.984],
}


def texts(picture: Path) -> str:
    return " ".join("".join(ElementTree.parse(picture).getroot().itertext()).split())


def test_a_picture_for_each_benchmark(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = draw([UNLIKE, {"name": "lookup", "rows_per_s": 1}, CONVERGENCE], tmp_path)
    assert [path.name for path in written] == ["heterogeneity.svg", "convergence.svg"]
    assert all(said in texts(written[0]) for said in ("3:2:1:1", "14,000 samples/s", "13,650", "7,800"))
    assert "hybrid" in texts(written[1])


def test_the_same_lines_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = tmp_path / "lines"
    lines.write_text(json.dumps(UNLIKE) + "\n\n")
    for folder in ("a", "b"):
        assert main([str(lines), str(tmp_path / folder)]) == 0
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["heterogeneity.svg"]
    assert len({(tmp_path / folder / "heterogeneity.svg").read_bytes() for folder in ("a", "b")}) == 1


def test_usage_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "LINES FOLDER" in capsys.readouterr().err
