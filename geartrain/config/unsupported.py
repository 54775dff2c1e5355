"""What the config's language has and this release does not do yet: refused by name, never accepted and ignored.

A rule that is built is one line less here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from geartrain.config.validation import field_error, shown


@dataclass(frozen=True)
class NotYet:
    """`field` (parts joined by dots, * for any key or index) must be one of `now`.

    With `later`, only its values are refused here, and validation refuses what is in neither.
    """

    field: str
    now: tuple[Any, ...]
    later: tuple[Any, ...] = ()

    def refuses(self, value: Any) -> bool:
        return value in self.later if self.later else value not in self.now


_MODELS = ("lr", "wide_deep", "deepfm", "dcn")

NOT_YET = (
    NotYet("model.type", _MODELS, later=("dlrm", "din", "mmoe")),
    NotYet("features.*.pooling", ("mean", "sum"), later=("none",)),
    NotYet("features.*.attends", (None,)),
    NotYet("compression.dense", ("auto", "fp32")),
    NotYet("routing.every_steps", (200,)),
    NotYet("routing.max_over_mean", (1.2,)),
    NotYet("replication", (1,)),
    NotYet("checkpoint.every", ("pass",)),
)


def refuse_unsupported(data: Mapping[str, Any]) -> None:
    """Raises ConfigError for the first field of `data` (a config before validation) that a rule refuses."""
    for rule in NOT_YET:
        for field, value in _matches(data, rule.field.split("."), ""):
            if rule.refuses(value):
                names = ", ".join(map(shown, rule.now))
                allowed = names if len(rule.now) == 1 else f"one of {names}"
                raise field_error(field, allowed, value, note="not available yet")


def _matches(here: Any, parts: list[str], path: str) -> Iterator[tuple[str, Any]]:
    if not parts:
        yield path[1:], here
        return
    children: list[tuple[Any, Any]] = []
    if isinstance(here, Mapping):
        children = list(here.items())
    elif isinstance(here, (list, tuple)):
        children = list(enumerate(here))
    for key, value in children:
        if parts[0] in ("*", key):
            yield from _matches(value, parts[1:], f"{path}.{key}")
