"""An optimizer's fields are used or refused, never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from embedding_tier.optimizer import Optimizer, row_initializer
from geartrain.errors import ConfigError
from geartrain.wire.messages import Apply, TableSpec
from kernels.row_store import UpdateRule


def test_a_rule_takes_the_config_and_the_decision() -> None:
    fields = {"type": "adam", "lr": 9.0, "l2": 0.1, "beta1": 0.8, "beta2": 0.7, "eps": 1e-3}
    decision = Apply(1, 6, [], 32.0, 0.5, 2.5, 0.0, {}, [])
    expected = UpdateRule(
        lr=0.2, l2=0.1, step_scale=0.5, divisor=32.0, beta1=0.8, beta2=0.7, eps=1e-3, step=6, most_windows=2.5
    )
    assert Optimizer.from_config(fields).rule(decision, 0.2) == expected


@pytest.mark.parametrize("fields", [{}, {"type": "momentum"}, {"type": "sgd", "momentum": 0.9}])
def test_what_is_not_known_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Optimizer.from_config(fields)


def test_defaults_are_those_of_the_optimizers() -> None:
    assert Optimizer.from_config({"type": "adagrad"}).eps == 1e-10
    assert Optimizer.from_config({"type": "rowwise_adagrad"}).eps == 1e-8


@pytest.mark.parametrize("initializer", [{}, {"type": "ones"}, {"type": "uniform"}, {"type": "normal", "range": 1.0}])
def test_an_initializer_that_is_not_known_is_refused(initializer: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="table t"):
        row_initializer(TableSpec("t", 4, {"type": "sgd"}, initializer, 1))


def test_tables_of_one_seed_begin_differently() -> None:
    specs = [TableSpec(name, 4, {"type": "sgd"}, {"type": "normal", "std": 0.5}, 1) for name in ("a", "b")]
    first, second = map(row_initializer, specs)
    assert first.seed != second.seed
    assert first.scale == second.scale == 0.5
