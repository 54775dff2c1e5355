"""What others may see of a running job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class RunView:
    """`events` are (kind, message) since they were last taken."""

    state: str = "probing"
    pass_index: int = 0
    version: int = 0
    groups: dict[int, tuple[str, ...]] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)


def brief(metrics: dict[str, Any]) -> str:
    """Metrics in a line."""
    return ", ".join(
        f"{name} {value:.5f}" if isinstance(value, float) else f"{name} {value}" for name, value in metrics.items()
    )
