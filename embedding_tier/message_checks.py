"""What must hold of a control message beyond the types of its fields, checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from geartrain.errors import ConfigError, WireError
from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import Apply, OpenJob, PlaceDense, Route

_FLOAT32 = (1.1754943508222875e-38, 3.4028234663852886e38)


def as_number(name: str, value: object) -> float:
    """The value of a plain field. Raises `ConfigError` naming the field when it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {value!r}, expected a number", field=name, value=str(value), expected="a number")
    return float(value)


def number_in(fields: Mapping[str, Any], name: str, default: float) -> float:
    """A number among the plain fields of a config's section. Raises `ConfigError` when it is none."""
    return as_number(name, fields.get(name, default))


def count_in(fields: Mapping[str, Any], name: str, default: int) -> int:
    """An integer >= 1 among the plain fields of a config's section. Raises `ConfigError` when it is none."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{name} is {value!r}, expected an integer >= 1", field=name, value=str(value), expected="an integer >= 1"
        )
    return value


def kind_in(fields: Mapping[str, Any]) -> str:
    """The `type` of a config's section, '' when there is none."""
    kind = fields.get("type", "")
    return kind if isinstance(kind, str) else ""


def pipeline_depth(opening: OpenJob) -> int:
    """The pipeline depth of the job's config. Raises `WireError` when it is no depth."""
    sync = opening.config.get("sync", {})
    depth = sync.get("pipeline_depth", 0) if isinstance(sync, dict) else None
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
        raise WireError(f"pipeline_depth {depth!r}", field="pipeline_depth", expected="an integer >= 0", got=str(depth))
    return depth


def check_opening(opening: OpenJob) -> None:
    """Raises `WireError` for a route that does not place every shard, or a table that is there twice."""
    route = opening.route
    if len(route.owners) != NUM_SHARDS or not all(0 <= owner < len(route.servers) for owner in route.owners):
        raise WireError(
            f"a route of {len(route.owners)} shards over {len(route.servers)} servers",
            field="route.owners",
            expected=f"{NUM_SHARDS} numbers of servers",
            got=len(route.owners),
        )
    names = [table.name for table in opening.tables]
    if len(set(names)) != len(names):
        raise WireError("two tables of one name", field="tables", expected="names that differ", got=names)


def check_bounds(placing: PlaceDense, route: Route) -> None:
    """Raises `WireError` unless the bounds cut the dense vector for the servers of the route."""
    bounds = placing.bounds
    rising = all(low <= high for low, high in pairwise([0, *bounds]))
    if len(bounds) != len(route.servers) + 1 or not rising:
        raise WireError(
            f"bounds {bounds[:4]} ... for {len(route.servers)} servers",
            field="bounds",
            expected=f"{len(route.servers) + 1} rising positions",
            got=bounds[:4],
        )


def check_decision(decision: Apply) -> None:
    """Raises `WireError` for a number that would make rows or dense values infinite or not a number."""
    numbers = [
        ("divisor", decision.divisor),
        ("step_scale", decision.step_scale),
        ("dense_lr", decision.dense_lr),
        *((f"sparse_lr.{table}", lr) for table, lr in decision.sparse_lr.items()),
        *((f"weight of group {one.group}", one.weight) for one in decision.contributions),
    ]
    for name, value in numbers:
        if value != 0 and not _FLOAT32[0] <= value <= _FLOAT32[1]:
            raise WireError(
                f"decision {decision.version}: {name} is {value:g}",
                field=name,
                expected="0, or a positive number that float32 can hold",
                got=value,
            )
