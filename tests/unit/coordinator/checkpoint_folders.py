"""Checkpoint folders with the rows of one table, and an empty dense vector."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec

from coordinator.checkpoints import FORMAT, BestSoFar, DataStatistics, Manifest
from coordinator.cut_folders import CutFolders

ROWS = b"abcd"


def rows_file(server: str, table: str, version: int = 3, rows: bytes = ROWS, **changes: Any) -> dict[str, Any]:
    """What a manifest says of a server's rows of a table."""
    about = {
        "server": server,
        "version": version,
        "bytes": len(rows),
        "crc32": zlib.crc32(rows),
        "part": "rows",
        "table": table,
        "num_rows": 1,
        "num_deleted": 0,
        "dim": 2,
        "row_dtype": "fp32",
        "optimizer": "adagrad",
        "state_width": 2,
        "sketch_bytes": 0,
        "kind": "full",
        "base": None,
    }
    return {**about, **changes}


def dense_files(server: str, start: int, stop: int, version: int = 3) -> dict[str, dict[str, Any]]:
    """What a manifest says of a server's range of the dense vector; the files are empty."""
    about = {"server": server, "version": version, "bytes": 0, "crc32": 0, "start": start, "stop": stop}
    return {
        f"dense.{server}.npy": {**about, "optimizer": "adam", "part": "dense"},
        f"dense_states.{server}.npy": {**about, "optimizer": "adam", "part": "dense_states"},
    }


def files(version: int = 3, rows: bytes = ROWS, server: str = "s0", **changes: Any) -> dict[str, Any]:
    """All files of a server: rows of the table t, and nothing of the dense vector."""
    return {"t.rows": rows_file(server, "t", version, rows, **changes), **dense_files(server, 0, 0, version)}


def manifest(**changes: Any) -> dict[str, Any]:
    """One that is whole, whatever its `version`; other `changes` may make it odd."""
    whole = Manifest(
        format=FORMAT,
        job="job",
        config={},
        version=3,
        term=1,
        passes_done=1,
        samples=10,
        train_seconds=1.0,
        schedule={},
        metrics={},
        best=BestSoFar(0, 3, {}, None, 0),
        index=DataStatistics({}, {}),
        segments=[],
        dense_optimizer={"type": "adam"},
        servers=["s0"],
        files=files(changes.get("version", 3)),
        pass_versions=[0],
    )
    return {**msgspec.to_builtins(whole), **changes}


def cut(root: Path, name: str, rows: bytes = ROWS, **changes: Any) -> Path:
    folders, temporary = CutFolders(), root / f".tmp-{name}"
    folders.prepare(temporary)
    write_files(temporary, rows)
    folders.publish(temporary, root / name, manifest(**changes), ())
    return root / name


def write_files(folder: Path, rows: bytes = ROWS) -> None:
    (folder / "t.rows").write_bytes(rows)
    for name in dense_files("s0", 0, 0):
        (folder / name).touch()
