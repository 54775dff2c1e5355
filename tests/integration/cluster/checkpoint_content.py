"""What is in a checkpoint, in an order that does not depend on how its rows came about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def manifest(checkpoint: str | Path) -> dict[str, Any]:
    """The fields of the manifest, without its own checksum."""
    fields = json.loads((Path(checkpoint) / "manifest.json").read_text())
    assert isinstance(fields, dict)
    del fields["crc32"]
    return fields


def content(checkpoint: str | Path) -> dict[str, bytes]:
    """The bytes of every file: rows stand by shard and then by key, so equal tables are equal files."""
    return {name: (Path(checkpoint) / name).read_bytes() for name in sorted(manifest(checkpoint)["files"])}
