"""From the config's optimizer and a window's decision to the numbers of one update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from embedding_tier.message_checks import as_number, kind_in, number_in
from geartrain.errors import ConfigError
from geartrain.wire.messages import Apply, TableSpec
from kernels.initializer import Initializer, initializer_seed
from kernels.update_rule import UpdateRule

_COMMON = frozenset({"type", "lr", "l2", "weight_bounds"})
_OWN: dict[str, frozenset[str]] = {
    "sgd": frozenset(),
    "adagrad": frozenset({"eps"}),
    "rowwise_adagrad": frozenset({"eps"}),
    "adam": frozenset({"beta1", "beta2", "eps"}),
    "rowwise_adam": frozenset({"beta1", "beta2", "eps"}),
    "ftrl": frozenset({"l1", "beta"}),
}
_EPS = {"adagrad": 1e-10}
_NO_BOUNDS = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer without its learning rate, which comes with each decision."""

    kind: str
    l2: float
    beta1: float
    beta2: float
    eps: float
    l1: float
    beta: float
    min_weight: float
    max_weight: float

    @staticmethod
    def from_config(fields: dict[str, Any]) -> Optimizer:
        """From the fields of the config's optimizer. Raises `ConfigError` for a kind or field that is not known."""
        kind = kind_in(fields)
        if kind not in _OWN:
            raise ConfigError(f"optimizer {kind!r} is not known", field="type", value=kind, expected=sorted(_OWN))
        if unknown := sorted(set(fields) - _COMMON - _OWN[kind]):
            raise ConfigError(
                f"optimizer {kind} has no {unknown[0]}",
                field=unknown[0],
                value=fields[unknown[0]],
                expected="no such field",
            )
        bounds = fields.get("weight_bounds") or _NO_BOUNDS
        if not (isinstance(bounds, list | tuple) and len(bounds) == 2):
            raise ConfigError(
                "weight_bounds are no pair", field="weight_bounds", value=str(bounds), expected="[low, high]"
            )
        return Optimizer(
            kind=kind,
            l2=number_in(fields, "l2", 0.0),
            beta1=number_in(fields, "beta1", 0.9),
            beta2=number_in(fields, "beta2", 0.999),
            eps=number_in(fields, "eps", _EPS.get(kind, 1e-8)),
            l1=number_in(fields, "l1", 0.0),
            beta=number_in(fields, "beta", 1.0),
            min_weight=as_number("weight_bounds", bounds[0]),
            max_weight=as_number("weight_bounds", bounds[1]),
        )

    def rule(self, decision: Apply, lr: float) -> UpdateRule:
        """The numbers of the update that makes `decision.version`; Adam's step number is the version."""
        return UpdateRule(
            lr=lr,
            l2=self.l2,
            step_scale=decision.step_scale,
            divisor=decision.divisor,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            step=decision.version,
            l1=self.l1,
            beta=self.beta,
            min_weight=self.min_weight,
            max_weight=self.max_weight,
            most_windows=decision.most_windows,
        )


def row_initializer(spec: TableSpec) -> Initializer:
    """How a table's rows begin. Raises `ConfigError` for a kind that is not known."""
    kind = kind_in(spec.initializer)
    sizes = {"zero": "", "uniform": "range", "normal": "std"}
    size = sizes.get(kind)
    if size is None or (size and size not in spec.initializer):
        raise ConfigError(
            f"table {spec.name}: initializer {spec.initializer} is not known",
            field=f"tables.{spec.name}.initializer",
            value=str(spec.initializer),
            expected="zero, uniform with a range, or normal with a std",
        )
    scale = number_in(spec.initializer, size, 0.0) if size else 0.0
    return Initializer(kind, scale, initializer_seed(spec.seed, spec.name))
