"""What others may see of a running job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator.events import GroupSpec


@dataclass(slots=True)
class RunView:
    """`events` are (kind, message) since they were last taken."""

    state: str = "probing"
    pass_index: int = 0
    version: int = 0
    groups: tuple[GroupSpec, ...] = ()
    groups_reason: str = "groups are not formed yet"
    shares_reason: str = ""
    generation: int = 0
    events: list[tuple[str, str]] = field(default_factory=list)

    def groups_formed(self, groups: Iterable[GroupSpec], reason: str) -> None:
        """These groups live from now on: a new generation."""
        self.generation += 1
        self.groups, self.groups_reason, self.shares_reason = tuple(groups), reason, ""

    def shares_changed(self, groups: Iterable[GroupSpec], reason: str) -> None:
        """The same groups have other batches or shares."""
        self.groups, self.shares_reason = tuple(groups), reason


def brief(metrics: dict[str, Any]) -> str:
    """Metrics in a line."""
    return ", ".join(
        f"{name} {value:.5f}" if isinstance(value, float) else f"{name} {value}" for name, value in metrics.items()
    )
