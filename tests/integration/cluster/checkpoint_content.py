"""What is in a checkpoint, in an order that does not depend on how its rows came about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def manifest(checkpoint: str | Path) -> dict[str, Any]:
    fields = json.loads((Path(checkpoint) / "manifest.json").read_text())
    assert isinstance(fields, dict)
    return fields


def content(checkpoint: str | Path) -> dict[str, bytes]:
    """The bytes of every part: rows in the order of their keys, the parts of the servers one after the other."""
    directory = Path(checkpoint)
    files = manifest(directory)["files"]
    parts: dict[str, bytes] = {}
    for name in sorted(files):
        about = files[name]
        array = np.load(directory / name, allow_pickle=False)
        if about.get("table") is not None:
            keys = np.load(directory / name.replace(f".{about['part']}.npy", ".keys.npy"), allow_pickle=False)
            array = array[np.argsort(keys)]
        parts[name] = array.tobytes()
    return parts
