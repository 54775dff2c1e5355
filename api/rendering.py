"""JSON text for answers: always valid JSON, whatever floats and strings the data holds."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import JSONResponse


def to_json(value: Any) -> str:
    """Compact JSON of plain data; NaN and infinities become null, lone surrogates the replacement character."""
    try:
        text = _dumps(value)
        # Fails where the text holds a lone surrogate, which UTF-8 cannot carry.
        text.encode()
    except ValueError:
        return _dumps(_representable(value))
    return text


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _representable(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_representable(str(name)): _representable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_representable(item) for item in value]
    return value


class JsonAnswer(JSONResponse):
    """The answer of every JSON call."""

    def render(self, content: Any) -> bytes:
        return to_json(content).encode()
