from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geartrain.config import JobConfig, parse_config
from geartrain.config.overrides import apply_override

Fields = dict[str, Any]


@pytest.fixture
def fields() -> Fields:
    """A config with one feature of each kind and few other fields; a new one for each test."""
    return {
        "name": "small",
        "features": [
            {"name": "user", "kind": "categorical"},
            {"name": "price", "kind": "numeric", "transform": "log1p"},
            {"name": "history", "kind": "sequence", "table": "item"},
        ],
        "label": "click",
        "data": {"format": "csv", "train": ["train.csv"], "valid": ["valid.csv"]},
        "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [8]},
    }


@pytest.fixture
def parse(fields: Fields, tmp_path: Path) -> Callable[..., JobConfig]:
    """Parses `fields`, with overrides, in an empty folder that is the only allowed root."""

    def parse_with(*overrides: str) -> JobConfig:
        for override in overrides:
            apply_override(fields, override)
        return parse_config(fields, tmp_path, [tmp_path])

    return parse_with
