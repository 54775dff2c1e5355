"""When rows of a table leave for age: the shards that a version looks at, and what is old there. Pure.

A table is swept bit by bit, a part of its 1,024 shards with every version, so that no window takes long. Which part
follows from the version alone: it does not depend on the number of servers, on when they started, or on a restore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from embedding_tier.message_checks import count_in, kind_in, number_in
from geartrain.errors import ConfigError
from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import TableSpec

_FIELDS = {
    "never": frozenset[str](),
    "unseen": frozenset({"versions", "passes"}),
    "score": frozenset({"threshold", "decay", "show_weight", "click_weight", "every_versions"}),
}


class Sweep(NamedTuple):
    """Shards [first_shard, last_shard), whose rows leave if their last version is less than `unseen_before`.

    A score expiry has other rules for its rows, and no use for `unseen_before`.
    """

    first_shard: int
    last_shard: int
    unseen_before: int


@dataclass(frozen=True, slots=True)
class Expiry:
    """How rows of one table leave. `kind` is *never*, *unseen* or *score*, as `kernels.row_life.RowLife` knows them.

    Of *unseen*, exactly one of `versions` and `passes` is not None; the rest is of *score*.
    """

    kind: str = "never"
    versions: int | None = None
    passes: int | None = None
    every_versions: int = NUM_SHARDS
    threshold: float = 0.0
    decay: float = 1.0
    show_weight: float = 1.0
    click_weight: float = 1.0

    @staticmethod
    def of(spec: TableSpec) -> Expiry:
        """From a table's settings. Raises `ConfigError` for a kind or fields that are not known."""
        kind = kind_in(spec.expiry)
        fields = {name: value for name, value in spec.expiry.items() if name != "type" and value is not None}
        is_known = kind in _FIELDS and set(fields) <= _FIELDS[kind]
        if not is_known or (kind == "unseen" and len(fields) != 1):
            raise ConfigError(
                f"table {spec.name}: expiry {spec.expiry} is not known",
                field=f"tables.{spec.name}.expiry",
                value=str(spec.expiry),
                expected="never, unseen with either versions or passes, or score",
            )
        return Expiry(
            kind,
            versions=count_in(fields, "versions", 1) if "versions" in fields else None,
            passes=count_in(fields, "passes", 1) if "passes" in fields else None,
            every_versions=count_in(fields, "every_versions", NUM_SHARDS),
            threshold=number_in(fields, "threshold", 0.0),
            decay=number_in(fields, "decay", 1.0),
            show_weight=number_in(fields, "show_weight", 1.0),
            click_weight=number_in(fields, "click_weight", 1.0),
        )

    def sweep(self, version: int, pass_versions: Sequence[int]) -> Sweep | None:
        """What window `version` has to look at, or None for nothing.

        `pass_versions` are the versions on which the latest passes began, the last being the pass of this window.

        By versions, a row leaves at the first sweep of its shard at which at least so many versions have passed since
        its last one. By passes, it leaves if its last version is of before the whole passes that are looked back to;
        one that was seen in the pass under way has a later version and stays.
        """
        if self.kind == "score":
            return _part(version, self.every_versions, 0)
        if self.versions is not None:
            unseen_before = version - self.versions + 1
            return _part(version, min(self.versions, NUM_SHARDS), unseen_before) if unseen_before > 0 else None
        if self.passes is not None and len(pass_versions) > self.passes:
            last_whole = pass_versions[-1] - pass_versions[-2]
            period = max(1, min(last_whole, NUM_SHARDS))
            return _part(version, period, pass_versions[-1 - self.passes] + 1)
        return None


def shards_due(version: int, period: int) -> tuple[int, int]:
    """Shards [first, last) that version `version` >= 1 looks at: any `period` versions in a row look at each once."""
    place = (version - 1) % period
    return NUM_SHARDS * place // period, NUM_SHARDS * (place + 1) // period


def _part(version: int, period: int, unseen_before: int) -> Sweep | None:
    first, last = shards_due(version, period)
    return Sweep(first, last, unseen_before) if first < last else None
