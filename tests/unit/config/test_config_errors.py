"""Each fault is a ConfigError that names the field, what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from geartrain.config import JobConfig
from geartrain.errors import ConfigError, GeartrainError

Parse = Callable[..., JobConfig]

FLOAT32 = "a number in the range of float32 (1.2e-38 to 3.4e38)"

ONE_FIELD = [
    ("training.batch_size=0", "training.batch_size", "an integer >= 1", 0),
    ("training.batch_size=many", "training.batch_size", "an integer >= 1", "many"),
    ("training.batch_size=1.0", "training.batch_size", "an integer >= 1", 1.0),
    ("training.batch_size=true", "training.batch_size", "an integer >= 1", True),
    ("training.passes=0", "training.passes", "an integer >= 1", 0),
    ("training.passes=9223372036854775808", "training.passes", "an integer < 2^63", 2**63),
    ("training.max_skipped_steps=9223372036854775808", "training.max_skipped_steps", "an integer < 2^63", 2**63),
    ("features.2.max_length=9223372036854775808", "features.2.max_length", "an integer < 2^63", 2**63),
    ("sync.group_size=9223372036854775808", "sync.group_size", "an integer < 2^63", 2**63),
    ("model.embedding_dim=1000000000", "model.embedding_dim", "an integer <= 65536", 1000000000),
    ("training.dense_optimizer={type: sgd, lr: 1e39}", "training.dense_optimizer.lr", FLOAT32, 1e39),
    ("training.dense_optimizer={type: sgd, lr: 1e-39}", "training.dense_optimizer.lr", FLOAT32, 1e-39),
    ("training.dense_optimizer={type: sgd, lr: 1, l2: 1e39}", "training.dense_optimizer.l2", FLOAT32, 1e39),
    ("training.dense_optimizer={type: adam, lr: 1, eps: 1e39}", "training.dense_optimizer.eps", FLOAT32, 1e39),
    ("training.seed=-1", "training.seed", "an integer >= 0 and < 2^63", -1),
    ("training.max_skipped_steps=-1", "training.max_skipped_steps", "an integer >= 0", -1),
    ("training.dense_optimizer={type: adam, lr: 0}", "training.dense_optimizer.lr", "a number > 0", 0),
    ("training.dense_optimizer={type: adam, lr: .nan}", "training.dense_optimizer.lr", "a number > 0", "nan"),
    ("training.dense_optimizer={type: adam, lr: .inf}", "training.dense_optimizer.lr", "a number > 0", "inf"),
    ("training.dense_optimizer={type: adam}", "training.dense_optimizer.lr", "a value", None),
    ("training.lr_schedule={type: plateau, factor: 1}", "training.lr_schedule.factor", "a number > 0 and < 1", 1),
    ("training.early_stopping={patience: 0}", "training.early_stopping.patience", "an integer >= 1", 0),
    ("model.embedding_dim=0", "model.embedding_dim", "an integer >= 1", 0),
    ("model.hidden=[8, 0]", "model.hidden", "a list of integers from 1 to 65536", [8, 0]),
    ("model.hidden=[8, 1000000000]", "model.hidden", "a list of integers from 1 to 65536", [8, 1000000000]),
    ("model.hidden=[]", "model.hidden", "a list of integers from 1 to 65536", []),
    ("model.dropout=1", "model.dropout", "a number >= 0 and < 1", 1),
    ("model.batch_norm=1", "model.batch_norm", "true or false", 1),
    ("model.type=transformer", "model.type", "one of 'lr', 'wide_deep', 'deepfm' or 'dcn'", "transformer"),
    ("model=deepfm", "model", "a mapping of fields", "deepfm"),
    ("sync.mode=fast", "sync.mode", "one of 'sync', 'async' or 'hybrid'", "fast"),
    ("sync.group_size=0", "sync.group_size", "'auto' or an integer >= 1", 0),
    ("sync.window_ms=-1", "sync.window_ms", "'auto' or a number >= 0", -1),
    ("sync.window_ms=true", "sync.window_ms", "'auto' or a number >= 0", True),
    ("sync.staleness_decay=0", "sync.staleness_decay", "a number > 0 and <= 1", 0),
    ("sync.staleness_decay=1.5", "sync.staleness_decay", "a number > 0 and <= 1", 1.5),
    ("sync.pipeline_depth=2", "sync.pipeline_depth", "0 or 1", 2),
    ("sync.pipeline_depth=true", "sync.pipeline_depth", "0 or 1", True),
    ("features=[]", "features", "a list that is not empty", []),
    ("features.0.kind=word", "features.0.kind", "one of 'categorical', 'numeric', 'sequence'", "word"),
    ("features.2.max_length=0", "features.2.max_length", "an integer >= 1", 0),
    ("features.2.separator=", "features.2.separator", "a string that is not empty", None),
    ("data.train=[]", "data.train", "a list of at least one path or glob", []),
    ("data.train=train.csv", "data.train", "a list of at least one path or glob", "train.csv"),
    ("data.valid=[7]", "data.valid.0", "a string that is not empty", 7),
    ("data.format=xml", "data.format", "one of 'csv', 'tsv', 'parquet' or 'libsvm'", "xml"),
    ("data.separator=', '", "data.separator", "one ASCII character, not a quote, newline or NUL", ", "),
    ("label={}", "label.column", "a value", None),
    ("label=3", "label", "a mapping of fields", 3),
    ("tables=[]", "tables", "a mapping", []),
    ("tables.default={initializer: {type: normal, std: 0}}", "tables.default.initializer.std", "a number > 0", 0),
    ("sync.step_scale=1", "sync.step_scale", "true or false", 1),
    ("training.precision=int8", "training.precision", "one of 'auto', 'fp32', 'bf16' or 'fp16'", "int8"),
    ("portrait.num_probes=19", "portrait.num_probes", "an integer >= 20", 19),
    ("portrait.num_probes=9223372036854775808", "portrait.num_probes", "an integer < 2^63", 2**63),
    ("portrait.update_every_steps=0", "portrait.update_every_steps", "an integer >= 1", 0),
    ("portrait.initial={w0: 3000}", "portrait.initial.w0", "a mapping of fields", 3000),
    ("portrait.initial={w0: {}}", "portrait.initial.w0.samples_per_s", "a value", None),
    ("portrait.initial={w0: {samples_per_s: 0}}", "portrait.initial.w0.samples_per_s", "a number > 0", 0),
    ("portrait.initial={w0: {samples_per_s: .inf}}", "portrait.initial.w0.samples_per_s", "a number > 0", "inf"),
    ("heterogeneous=1", "heterogeneous", "true or false", 1),
]


@pytest.mark.parametrize(("override", "field", "expected", "value"), ONE_FIELD)
def test_wrong_value_names_field_expectation_and_value(
    parse: Parse, override: str, field: str, expected: str, value: Any
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(override)
    facts = caught.value.facts
    assert (facts["field"], facts["expected"], facts["value"]) == (field, expected, value)
    assert caught.value.message.startswith(f"{field}: expected {expected}")
    assert caught.value.exit_status == 2


def test_message_has_the_published_form(parse: Parse) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("training.batch_size=0")
    assert caught.value.message == "training.batch_size: expected an integer >= 1, got 0"


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("momentum=0.9", "momentum"),
        ("model.embeding_dim=4", "model.embeding_dim"),
        ("features.0.pooling=mean", "features.0.pooling"),
        ("features.2.length=5", "features.2.length"),
        ("data.folder=x", "data.folder"),
        ("tables.default={rows: 5}", "tables.default.rows"),
        ("training.sparse_optimizer={type: sgd, lr: 1, momentum: 0.9}", "training.sparse_optimizer.momentum"),
        ("training.sparse_optimizer={type: sgd, lr: 1, beta1: 0.9}", "training.sparse_optimizer.beta1"),
        ("training.sparse_optimizer={type: adagrad, lr: 1, beta2: 0.9}", "training.sparse_optimizer.beta2"),
        ("training.dense_optimizer={type: sgd, lr: 1, eps: 0.1}", "training.dense_optimizer.eps"),
        ("training.lr_schedule={type: constant, factor: 0.1}", "training.lr_schedule.factor"),
        ("tables.default={initializer: {type: zero, range: 1}}", "tables.default.initializer.range"),
    ],
)
def test_unknown_field_is_refused_with_the_known_ones(parse: Parse, override: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(override)
    assert caught.value.facts["field"] == field
    assert caught.value.message.startswith(f"{field}: unknown field, expected one of ")


def test_required_fields_are_named(parse: Parse, fields: dict[str, Any]) -> None:
    for name in ("features", "label", "data", "model"):
        kept = fields.pop(name)
        with pytest.raises(ConfigError, match=f"^{name}: expected a value, the field is missing$"):
            parse()
        fields[name] = kept


def test_missing_kind_and_type_are_named(parse: Parse) -> None:
    with pytest.raises(ConfigError, match=r"^features\.0\.kind: expected a value, the field is missing$"):
        parse("features.0={name: user}")
    with pytest.raises(ConfigError, match=r"^training\.dense_optimizer\.type: expected a value"):
        parse("features.0={name: user, kind: categorical}", "training.dense_optimizer={lr: 1}")


def test_errors_cross_the_wire(parse: Parse) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("training.dense_optimizer={type: adam, lr: .nan}")
    again = GeartrainError.from_dict(caught.value.to_dict())
    assert isinstance(again, ConfigError)
    assert again.facts == caught.value.facts


def test_config_cannot_be_changed(parse: Parse) -> None:
    config = parse()
    with pytest.raises(ValueError, match="frozen"):
        config.training.passes = 4
