"""Which rows, optimizer and initial values each table has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geartrain.config import JobConfig, ModelConfig, has_first_order, row_dim

Parse = Callable[..., JobConfig]
ADAGRAD = {"type": "rowwise_adagrad", "lr": 0.05, "l2": 0.0, "eps": 1e-8, "weight_bounds": None}


@pytest.mark.parametrize(
    ("kind", "dim", "first_order"), [("lr", 1, True), ("wide_deep", 8, True), ("deepfm", 8, True), ("dcn", 7, False)]
)
def test_row_dim(kind: str, dim: int, first_order: bool) -> None:
    model = ModelConfig.model_validate({"type": kind, "embedding_dim": 7})
    assert row_dim(model) == dim
    assert has_first_order(model) is first_order


def test_tables_come_in_order_of_first_use_each_once(parse: Parse) -> None:
    config = parse(
        "features=[{name: b, kind: sequence, table: t}, {name: x, kind: numeric}, {name: a, kind: categorical},"
        " {name: c, kind: categorical, table: t},"
        " {name: age, kind: numeric, transform: bucketize, boundaries: [18, 30]}]",
        "training.seed=9",
    )
    assert config.table_names() == ("t", "a", "age")
    specs = config.table_specs()
    assert [spec.name for spec in specs] == ["t", "a", "age"]
    assert {(spec.dim, spec.seed) for spec in specs} == {(5, 9)}


def test_defaults_reach_every_table(parse: Parse) -> None:
    for spec in parse().table_specs():
        assert spec.optimizer == ADAGRAD
        assert spec.initializer == {"type": "uniform", "range": 0.01}


def test_the_most_specific_setting_wins(parse: Parse) -> None:
    user, item = parse("tables={default: {lr: 0.1}, item: {lr: 0.2}}").table_specs()
    assert (user.optimizer, item.optimizer) == ({**ADAGRAD, "lr": 0.1}, {**ADAGRAD, "lr": 0.2})
    user, item = parse("tables={default: {lr: 0.1}, item: {optimizer: {type: sgd, lr: 1, l2: 0.5}}}").table_specs()
    assert user.optimizer == {**ADAGRAD, "lr": 0.1}
    assert item.optimizer == {"type": "sgd", "lr": 1.0, "l2": 0.5, "weight_bounds": None}
    user, item = parse("tables={default: {optimizer: {type: sgd, lr: 1}}, item: {lr: 3}}").table_specs()
    assert (user.optimizer["lr"], item.optimizer["type"], item.optimizer["lr"]) == (1.0, "sgd", 3.0)


def test_initializers_are_chosen_per_table(parse: Parse) -> None:
    user, item = parse(
        "tables={default: {initializer: {type: normal, std: 0.1}}, user: {initializer: {type: zero}}}"
    ).table_specs()
    assert user.initializer == {"type": "zero"}
    assert item.initializer == {"type": "normal", "std": 0.1}


def test_optimizers_carry_exactly_the_fields_of_their_kind(parse: Parse) -> None:
    common = {"type", "lr", "l2", "weight_bounds"}
    adam = {"beta1", "beta2", "eps"}
    adagrads = {"adagrad": {"eps"}, "rowwise_adagrad": {"eps"}}
    own = {"sgd": set(), **adagrads, "adam": adam, "rowwise_adam": adam, "ftrl": {"l1", "beta"}}
    for kind, names in own.items():
        spec = parse(f"training.sparse_optimizer={{type: {kind}, lr: 1}}").table_specs()[0]
        assert set(spec.optimizer) == common | names
