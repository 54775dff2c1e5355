"""The published JSON schema and the examples are current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geartrain.config import JobConfig, config_json_schema, load_config

ROOT = Path(__file__).resolve().parents[3]
# Files named cluster_* are machines for `geartrain simulate`, not jobs.
EXAMPLES = sorted(file for file in (ROOT / "examples").glob("*.yaml") if not file.stem.startswith("cluster_"))


def test_published_schema_is_current() -> None:
    published = json.loads((ROOT / "docs" / "config-schema.json").read_text(encoding="utf-8"))
    assert published == config_json_schema(), "run scripts/write_config_schema.py"


def test_schema_has_every_field_and_refuses_others() -> None:
    schema = config_json_schema()
    assert set(schema["properties"]) == set(JobConfig.model_fields)
    assert schema["required"] == ["features", "label", "data", "model"]
    assert all(part.get("additionalProperties") is False for part in [schema, *schema["$defs"].values()])
    assert {"type": "string"} in schema["properties"]["label"]["anyOf"]


def test_there_are_examples() -> None:
    assert {"frappe_deepfm", "ml1m_deepfm", "adult_wide_deep", "fetched_adult_wide_deep", "movielens_100k_deepfm"} <= {
        f.stem for f in EXAMPLES
    }


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_loads(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("frappe", "ml1m", "adult", "criteo_8k", "movielens-100k"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("GEARTRAIN_DATA", str(tmp_path))
    config = load_config(file)
    assert Path(config.data.root).parent == tmp_path
    assert JobConfig.from_resolved(config.to_dict()) == config
