"""Writes docs/config-schema.json, the JSON schema of a config file. Run it after a change in geartrain/config."""

from __future__ import annotations

import json
from pathlib import Path

from geartrain.config import config_json_schema

SCHEMA_FILE = Path(__file__).resolve().parent.parent / "docs" / "config-schema.json"


def schema_text() -> str:
    """What the file must hold."""
    return json.dumps(config_json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
