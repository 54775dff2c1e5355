"""From the config's optimizer and a window's decision to the numbers of one update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geartrain.errors import ConfigError
from geartrain.wire.messages import Apply, TableSpec
from kernels.initializer import Initializer, initializer_seed
from kernels.update_rule import UpdateRule

_EPS = {"sgd": 0.0, "adagrad": 1e-10, "rowwise_adagrad": 1e-8, "adam": 1e-8}
_FIELDS = frozenset({"type", "lr", "l2", "beta1", "beta2", "eps"})


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer without its learning rate, which comes with each decision."""

    kind: str
    l2: float
    beta1: float
    beta2: float
    eps: float

    @staticmethod
    def from_config(fields: dict[str, Any]) -> Optimizer:
        """From the fields of the config's optimizer. Raises `ConfigError` for a kind or field that is not known."""
        kind = fields.get("type", "")
        if kind not in _EPS:
            raise ConfigError(f"optimizer {kind!r} is not known", field="type", value=kind, expected=sorted(_EPS))
        if unknown := sorted(set(fields) - _FIELDS):
            raise ConfigError(
                f"optimizer {kind} has no {unknown[0]}",
                field=unknown[0],
                value=fields[unknown[0]],
                expected="no such field",
            )
        return Optimizer(
            kind=kind,
            l2=float(fields.get("l2", 0.0)),
            beta1=float(fields.get("beta1", 0.9)),
            beta2=float(fields.get("beta2", 0.999)),
            eps=float(fields.get("eps", _EPS[kind])),
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
        )


def row_initializer(spec: TableSpec) -> Initializer:
    """How a table's rows begin. Raises `ConfigError` for a kind that is not known."""
    kind = spec.initializer.get("type", "")
    scales = {"zero": 0.0, "uniform": spec.initializer.get("range"), "normal": spec.initializer.get("std")}
    scale = scales.get(kind)
    if scale is None:
        raise ConfigError(
            f"table {spec.name}: initializer {spec.initializer} is not known",
            field=f"tables.{spec.name}.initializer",
            value=str(spec.initializer),
            expected="zero, uniform with a range, or normal with a std",
        )
    return Initializer(kind, float(scale), initializer_seed(spec.seed, spec.name))
