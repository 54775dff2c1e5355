"""Config and data files that are right, for tests to spoil one thing of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def write_job(folder: Path, **sections: Any) -> Path:
    """A config with its data in `folder`; `sections` replace those of the config."""
    for split in ("train", "valid", "test"):
        (folder / f"{split}.csv").write_text("label,user,price\n1,a,0.5\n0,b,1.5\n1,c,\n")
    fields: dict[str, Any] = {
        "name": "tiny",
        "features": [{"name": "user", "kind": "categorical"}, {"name": "price", "kind": "numeric"}],
        "label": "label",
        "data": {"train": ["train.csv"], "valid": ["valid.csv"], "test": ["test.csv"]},
        "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [8]},
        "training": {"passes": 1, "batch_size": 2},
    }
    path = folder / "job.yaml"
    with path.open("w") as file:
        YAML().dump({**fields, **sections}, file)
    return path
