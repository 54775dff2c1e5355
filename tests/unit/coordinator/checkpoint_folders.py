"""Checkpoint folders with one small file."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec

from coordinator.checkpoints import FORMAT, BestSoFar, DataStatistics, Manifest
from coordinator.cut_folders import CutFolders


def manifest(**changes: Any) -> dict[str, Any]:
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
        dense_optimizer={},
        files={"t.rows": {"bytes": 4, "crc32": zlib.crc32(b"abcd")}},
    )
    return {**msgspec.to_builtins(whole), **changes}


def cut(root: Path, name: str, **changes: Any) -> Path:
    folders, temporary = CutFolders(), root / f".tmp-{name}"
    folders.prepare(temporary)
    (temporary / "t.rows").write_bytes(b"abcd")
    folders.publish(temporary, root / name, manifest(**changes), ())
    return root / name
