from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console, RenderableType

from benchmarks import kernels_fbgemm
from benchmarks.support.kernel_table import kernel_table
from benchmarks.support.lines import Line, figures_table, put_out, readable


def shown(what: RenderableType) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def kernel_line(name: str, threads: int, rows_per_s: int, **more: Any) -> Line:
    figures = {"limit_rows_per_s": 200_000_000, "share_of_limit": rows_per_s / 2e8}
    return {"name": name, "threads": threads, "rows_per_s": rows_per_s, **figures, **more}


def test_json_lines_come_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def lines() -> Iterator[Line]:
        for number in range(2):
            yield {"name": "a", "value": number}
            seen.append(capsys.readouterr().out)

    assert put_out(lines(), True, lambda _: "") == 0
    assert [json.loads(out) for out in seen] == [{"name": "a", "value": 0}, {"name": "a", "value": 1}]


def test_people_get_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"name": "pull_ipc", "rows_per_s": 31_234_567, "p50_ms": 1.25, "share_of_limit": 0.7}]
    assert put_out(lines, False, lambda gathered: figures_table("Pulls", gathered)) == 0
    out = capsys.readouterr().out
    assert "Pulls" in out
    assert ["pull_ipc", "31,234,567", "1.25", "share_of_limit", "0.7"] in [line.split() for line in out.splitlines()]


def test_figures_are_readable() -> None:
    assert [readable(value) for value in (12_345_678, 7, 0.123456, 12_345.6, True, "x")] == [
        "12,345,678",
        "7",
        "0.1235",
        "12,346",
        "True",
        "x",
    ]


def test_kernels_stand_by_ids_and_threads() -> None:
    lines = [
        kernel_line("lookup", 1, 160_000_000),
        kernel_line("lookup", 2, 190_000_000),
        kernel_line("lookup_zipf", 1, 99_900_000),
        kernel_line(
            "fbgemm_pooled", 1, 400_000, ids="zipf", geartrain_rows_per_s=30_000_000, geartrain_over_fbgemm=75.0
        ),
    ]
    rows = [" ".join(line.split()) for line in shown(kernel_table(lines)).splitlines()]
    assert "lookup 99.9 160 -> 190 200 -> 200 0.80 -> 0.95" in rows
    assert "fbgemm_pooled 0.40" in rows
    assert "the same step here 30.0" in rows
    assert "here / there 75.0" in rows


def test_codecs_have_a_table_of_their_own() -> None:
    alone = kernel_line("decode_fp16", 1, 1_000_000, rows_from="memory", ns_per_value=0.07)
    peers = {"fbgemm_ns_per_value": 0.25, "fbgemm_checked_ns_per_value": 0.5}
    beside = kernel_line("encode_int8", 1, 1_000_000, rows_from="caches", ns_per_value=0.125, **peers)
    rows = [" ".join(line.split()) for line in shown(kernel_table([alone, beside])).splitlines()]
    assert "decode_fp16 memory 0.070 0.01" in rows
    assert "encode_int8 caches 0.125 0.250 0.500 0.01" in rows


@pytest.mark.parametrize(
    ("module", "error"),
    [("torch", ImportError("no torch")), ("fbgemm_gpu", OSError("undefined symbol"))],
)
def test_a_missing_peer_is_named(monkeypatch: pytest.MonkeyPatch, module: str, error: Exception) -> None:
    real_import = builtins.__import__

    def broken_import(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == module:
            raise error
        return real_import(name, *rest)

    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr(builtins, "__import__", broken_import)
    lines = list(kernels_fbgemm.lines(num_rows=10, batch_ids=26, rounds=1))
    assert [(line["name"], line["rows_per_s"]) for line in lines] == [
        ("fbgemm_pooled", None),
        ("fbgemm_unpooled", None),
    ]
    assert all(str(error) in line["missing"] for line in lines)
    assert str(error) in shown(kernel_table(lines))
