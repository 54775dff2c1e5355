"""Faults that lie between two fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geartrain.config import JobConfig
from geartrain.errors import ConfigError

Parse = Callable[..., JobConfig]

NO_VALID = "data.valid=[]"
LIBSVM = ("data.format=libsvm", "features=[{name: ids, kind: sequence, pooling: sum}]")
COLUMNS = "data.columns=[click, user, price, history]"

FAULTS = [
    (["features.1.name=user"], "features.1.name", "a name that no other feature has"),
    (["label=user"], "features.0.name", "a column other than the label's"),
    (["features=[{name: price, kind: numeric}]"], "features", "at least one categorical, sequence or bucketize"),
    (["features.0.name=a/b"], "features.0.table", "a table name"),
    (["features.0.name=default"], "features.0.table", "not 'default'"),
    (["features.1.table=price"], "features.1.table", "no table with transform log1p"),
    (["features.1.boundaries=[1]"], "features.1.boundaries", "no boundaries with transform log1p"),
    (["features.1.transform=bucketize"], "features.1.boundaries", "strictly increasing"),
    (["features.1={name: p, kind: numeric, transform: bucketize, boundaries: [1, 1]}"], "features.1.boundaries", "str"),
    (
        ["features.1={name: p, kind: numeric, transform: bucketize, boundaries: []}"],
        "features.1.boundaries",
        "strictly",
    ),
    (
        ["features.1={name: p, kind: numeric, transform: bucketize, boundaries: [1], table: user}"],
        "features.1.table",
        "a table without categorical or sequence features",
    ),
    (["data.header=true", COLUMNS], "data.columns", "either columns or header: true"),
    (["data.header=false"], "data.header", "header: true, or columns with the names"),
    (["data.columns=[click, user, price]"], "features.2.name", "one of data.columns: click, user, price"),
    (["data.columns=[user, price, history]"], "label.column", "one of data.columns"),
    (["data.columns=[user, user]"], "data.columns", "names that differ ('user' is there twice)"),
    (["data.format=parquet", COLUMNS], "data.columns", "no columns with format parquet"),
    (["data.format=parquet", "data.header=true"], "data.header", "no header with format parquet"),
    (["data.format=parquet", "data.separator=;"], "data.separator", "no separator with format parquet"),
    (["data.format=parquet", "data.missing=['?']"], "data.missing", "no missing values with format parquet"),
    ([*LIBSVM, "data.strip_whitespace=true"], "data.strip_whitespace", "no strip_whitespace with format libsvm"),
    (["data.format=libsvm"], "features", "exactly one sequence feature"),
    ([*LIBSVM, "features.0.separator=;"], "features.0.separator", "no separator with format libsvm"),
    (["data.group_by=price"], "data.group_by", "a categorical feature (user)"),
    (["data.group_by=history"], "data.group_by", "a categorical feature (user)"),
    ([NO_VALID, "training.early_stopping={}"], "data.valid", "training.early_stopping watches it"),
    ([NO_VALID, "training.lr_schedule={type: plateau}"], "data.valid", "training.lr_schedule watches it"),
    (["training.early_stopping={metric: gauc}"], "training.early_stopping.metric", "gauc needs data.group_by"),
    (["model.batch_norm=true", "training.batch_size=1"], "training.batch_size", "an integer >= 2"),
    (["tables.users={}"], "tables.users", "a table of the features: default, user, item"),
    (["tables.item={dim: 5}"], "tables.item.dim", "model.embedding_dim (4)"),
    (["tables.item={lr: 1, optimizer: {type: sgd, lr: 1}}"], "tables.item.lr", "either lr or optimizer"),
    (
        ["sync={max_staleness: 0, pipeline_depth: 1}"],
        "sync.max_staleness",
        "'auto' or an integer >= pipeline_depth (1)",
    ),
    (["checkpoint.directory=/tmp"], "checkpoint.directory", "relative, without '..'"),
    (["checkpoint.directory=a/../../b"], "checkpoint.directory", "relative, without '..'"),
]


@pytest.mark.parametrize(("overrides", "field", "expected"), FAULTS)
def test_fault_between_fields_names_the_field_to_change(
    parse: Parse, overrides: list[str], field: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(*overrides)
    assert caught.value.facts["field"] == field
    assert expected in caught.value.facts["expected"]


@pytest.mark.parametrize(
    "overrides",
    [
        [NO_VALID],
        ["data.group_by=user", "training.early_stopping={metric: gauc}"],
        ["model.batch_norm=true", "training.batch_size=2"],
        ["features.2.table=user"],
        ["features.0.name=a/b", "features.0.table=ab"],
        ["tables.item={dim: 4}"],
        ["sync={max_staleness: 0, mode: sync}"],
        list(LIBSVM),
        [*LIBSVM, "label=ids"],
    ],
)
def test_what_stands_next_to_a_fault_is_accepted(parse: Parse, overrides: list[str]) -> None:
    config = parse(*overrides)
    assert JobConfig.from_resolved(config.to_dict()) == config


def test_reading_rules_are_filled_in_by_format(parse: Parse) -> None:
    data = parse().data
    assert (data.header, data.columns, data.separator, data.missing) == (True, None, ",", ("",))
    data = parse("data.format=tsv", COLUMNS).data
    assert (data.header, data.columns, data.separator) == (False, ("click", "user", "price", "history"), "\t")
    data = parse("data.format=parquet", "data.columns=null").data
    assert (data.header, data.columns, data.separator, data.missing) == (None, None, None, ())


def test_label_forms(parse: Parse) -> None:
    assert parse("label=click").label.positive is None
    label = parse("label={column: rating, positive: [4, '5']}").label
    assert (label.column, label.positive) == ("rating", ("4", "5"))


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("{type: lr, hidden: [4]}", "model.hidden"),
        ("{type: lr, embedding_dim: 4}", "model.embedding_dim"),
        ("{type: lr, dropout: 0.5}", "model.dropout"),
        ("{type: wide_deep, num_cross_layers: 2}", "model.num_cross_layers"),
    ],
)
def test_a_field_without_a_part_in_the_model_is_refused(parse: Parse, model: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"model={model}")
    assert caught.value.facts["field"] == field


def test_a_model_takes_the_fields_that_it_has(parse: Parse) -> None:
    assert parse("model={type: lr}").model.type == "lr"
    assert parse("model={type: dcn, num_cross_layers: 2}").model.num_cross_layers == 2
