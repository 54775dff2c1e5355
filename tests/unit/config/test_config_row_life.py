"""How rows of tables begin and end, as the config says it: what is accepted, and by which path the rest is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from geartrain.config import JobConfig
from geartrain.errors import ConfigError

Parse = Callable[..., JobConfig]

ADMISSIONS: list[tuple[str, dict[str, Any]]] = [
    ("{type: always}", {"type": "always"}),
    ("{type: probability, p: 0.1}", {"type": "probability", "p": 0.1}),
    ("{type: count, n: 3}", {"type": "count", "n": 3, "sketch_mb": 16}),
    ("{type: count, n: 255, sketch_mb: 256}", {"type": "count", "n": 255, "sketch_mb": 256}),
]
SCORE = {
    "type": "score",
    "threshold": 1.0,
    "decay": 0.98,
    "show_weight": 1.0,
    "click_weight": 1.0,
    "every_versions": 1024,
}
EXPIRIES: list[tuple[str, dict[str, Any]]] = [
    ("{type: never}", {"type": "never"}),
    ("{type: unseen, versions: 500}", {"type": "unseen", "versions": 500, "passes": None}),
    ("{type: unseen, passes: 2}", {"type": "unseen", "versions": None, "passes": 2}),
    ("{type: score}", SCORE),
    ("{type: score, threshold: 0.5, every_versions: 1}", {**SCORE, "threshold": 0.5, "every_versions": 1}),
]

REFUSED = {
    "admission: {type: frequency}": "admission.type",
    "admission: {}": "admission.type",
    "admission: {type: always, p: 0.1}": "admission.p",
    "admission: {type: probability}": "admission.p",
    "admission: {type: probability, p: 0}": "admission.p",
    "admission: {type: probability, p: 1.1}": "admission.p",
    "admission: {type: probability, p: 0.1, n: 3}": "admission.n",
    "admission: {type: count}": "admission.n",
    "admission: {type: count, n: 0}": "admission.n",
    "admission: {type: count, n: 256}": "admission.n",
    "admission: {type: count, n: 2.0}": "admission.n",
    "admission: {type: count, n: 2, sketch_mb: 12}": "admission.sketch_mb",
    "admission: {type: count, n: 2, sketch_mb: 512}": "admission.sketch_mb",
    "admission: {type: count, n: 17, sketch_mb: 1}": "admission.sketch_mb",
    "expiry: {type: idle}": "expiry.type",
    "expiry: {type: never, versions: 3}": "expiry.versions",
    "expiry: {type: unseen}": "expiry.versions",
    "expiry: {type: unseen, versions: 3, passes: 2}": "expiry.versions",
    "expiry: {type: unseen, versions: 0}": "expiry.versions",
    "expiry: {type: unseen, passes: 1001}": "expiry.passes",
    "expiry: {type: unseen, passes: 1, decay: 0.5}": "expiry.decay",
    "expiry: {type: score, versions: 3}": "expiry.versions",
    "expiry: {type: score, threshold: 0}": "expiry.threshold",
    "expiry: {type: score, decay: 0}": "expiry.decay",
    "expiry: {type: score, decay: 1.5}": "expiry.decay",
    "expiry: {type: score, click_weight: -1}": "expiry.click_weight",
    "expiry: {type: score, show_weight: 0, click_weight: 0}": "expiry.show_weight",
    "expiry: {type: score, every_versions: 0}": "expiry.every_versions",
    "max_rows: 0": "max_rows",
    "max_rows: 4294967296": "max_rows",
    "max_rows: 10.5": "max_rows",
    "max_rows: 10, eviction: fifo": "eviction",
    "eviction: lru": "eviction",
    "row_dtype: fp8": "row_dtype",
    "optimizer: {type: sgd, lr: 1, weight_bounds: [1, 1]}": "optimizer.weight_bounds",
    "optimizer: {type: sgd, lr: 1, weight_bounds: [0, .inf]}": "optimizer.weight_bounds",
    "optimizer: {type: sgd, lr: 1, weight_bounds: [0, 1, 2]}": "optimizer.weight_bounds",
    "optimizer: {type: sgd, lr: 1, weight_bounds: 1}": "optimizer.weight_bounds",
    "optimizer: {type: rowwise_adam, lr: 1, l1: 1}": "optimizer.l1",
    "optimizer: {type: ftrl, lr: 1, beta: 0}": "optimizer.beta",
    "optimizer: {type: ftrl, lr: 1, eps: 1}": "optimizer.eps",
    "optimizer: {type: ftrl, lr: 1, l1: -1}": "optimizer.l1",
}


@pytest.mark.parametrize(("written", "expected"), ADMISSIONS, ids=str)
def test_each_admission_has_the_fields_of_its_kind(parse: Parse, written: str, expected: dict[str, Any]) -> None:
    user, item = parse(f"tables.item.admission={written}").table_specs()
    assert (user.admission, item.admission) == ({"type": "always"}, expected)


@pytest.mark.parametrize(("written", "expected"), EXPIRIES, ids=str)
def test_each_expiry_has_the_fields_of_its_kind(parse: Parse, written: str, expected: dict[str, Any]) -> None:
    user, item = parse(f"tables.item.expiry={written}").table_specs()
    assert (user.expiry, item.expiry) == ({"type": "never"}, expected)


@pytest.mark.parametrize("settings", REFUSED)
@pytest.mark.parametrize("table", ["item", "default"])
def test_what_is_wrong_is_refused_by_its_path(parse: Parse, table: str, settings: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"tables.{table}={{{settings}}}")
    assert caught.value.facts["field"] == f"tables.{table}.{REFUSED[settings]}"
    assert "not available yet" not in caught.value.message


def test_a_table_lives_as_the_default_says_where_it_says_nothing(parse: Parse) -> None:
    user, item = parse(
        "tables={default: {row_dtype: bf16, max_rows: 9000, eviction: lfu, expiry: {type: unseen, versions: 7}},"
        " item: {row_dtype: fp16, max_rows: 50, admission: {type: count, n: 2}}}"
    ).table_specs()
    assert (user.row_dtype, user.max_rows, user.eviction) == ("bf16", 9000, "lfu")
    assert (item.row_dtype, item.max_rows, item.eviction) == ("fp16", 50, "lfu")
    assert user.admission == {"type": "always"}
    assert user.expiry == item.expiry == {"type": "unseen", "versions": 7, "passes": None}


def test_tables_without_settings_keep_every_row_forever(parse: Parse) -> None:
    for spec in parse().table_specs():
        assert (spec.row_dtype, spec.max_rows, spec.eviction) == ("fp32", None, "lru")
        assert (spec.admission, spec.expiry) == ({"type": "always"}, {"type": "never"})


def test_an_eviction_needs_a_limit_of_the_table_or_of_the_default(parse: Parse) -> None:
    parse("tables={default: {max_rows: 10}, item: {eviction: lfu}}")
    parse("tables={default: {eviction: lfu}, item: {max_rows: 10}}")
    with pytest.raises(ConfigError, match=r"^tables.item.eviction: expected nothing: max_rows is not set, got"):
        parse("tables={default: {row_dtype: fp32}, item: {eviction: lfu}, user: {max_rows: 10}}")


@pytest.mark.parametrize("kind", ["rowwise_adagrad", "rowwise_adam", "ftrl"])
def test_optimizers_of_rows_are_none_of_the_dense_parameters(parse: Parse, kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"training.dense_optimizer={{type: {kind}, lr: 1}}")
    assert caught.value.facts["field"] == "training.dense_optimizer.type"
    assert caught.value.facts["expected"] == "one of 'sgd', 'adagrad', 'adam'"


def test_dense_parameters_have_no_bounds(parse: Parse) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("training.dense_optimizer={type: sgd, lr: 1, weight_bounds: [0, 1]}")
    assert caught.value.facts["field"] == "training.dense_optimizer.weight_bounds"


def test_bounds_reach_the_tables(parse: Parse) -> None:
    (spec, _) = parse("training.sparse_optimizer={type: ftrl, lr: 1, l1: 0.5, weight_bounds: [-2, 0.5]}").table_specs()
    assert spec.optimizer == {
        "type": "ftrl", "lr": 1.0, "l1": 0.5, "l2": 0.0, "beta": 1.0, "weight_bounds": [-2.0, 0.5],
    }  # fmt: skip
