"""Checks that concern several sections of a config. Each raises ConfigError with the path of the field to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geartrain.config.data import TEXT_SEPARATORS
from geartrain.config.features import CategoricalFeature, NumericFeature, SequenceFeature
from geartrain.config.schedule import PlateauSchedule
from geartrain.config.tables import check_evictions
from geartrain.config.validation import field_error

if TYPE_CHECKING:
    from geartrain.config.job import JobConfig


def check_job(config: JobConfig) -> None:
    """Raises ConfigError for the first check that fails."""
    for check in _CHECKS:
        check(config)


def _names(config: JobConfig) -> None:
    seen: set[str] = set()
    for place, feature in enumerate(config.features):
        field = f"features.{place}.name"
        if feature.name in seen:
            raise field_error(field, "a name that no other feature has", feature.name)
        if feature.name == config.label.column and config.data.format != "libsvm":
            raise field_error(field, "a column other than the label's", feature.name)
        seen.add(feature.name)


def _model_fields(config: JobConfig) -> None:
    for name in config.model.unused_fields():
        value = getattr(config.model, name)
        raise field_error(f"model.{name}", f"nothing: model {config.model.type} has no part for it", value)


def _slots(config: JobConfig) -> None:
    if not config.table_names():
        kinds = [feature.kind for feature in config.features]
        raise field_error("features", "at least one categorical, sequence or bucketize feature", kinds)


def _bucketize_tables(config: JobConfig) -> None:
    # A bucketize table's ids are bucket numbers, which mean nothing beside the values of a column.
    by_column = {
        feature.table for feature in config.features if isinstance(feature, CategoricalFeature | SequenceFeature)
    }
    for place, feature in enumerate(config.features):
        if isinstance(feature, NumericFeature) and feature.table in by_column:
            raise field_error(
                f"features.{place}.table", "a table without categorical or sequence features", feature.table
            )


def _columns(config: JobConfig) -> None:
    columns = config.data.columns
    if config.data.format not in TEXT_SEPARATORS or columns is None:
        return
    wanted = [(f"features.{place}.name", feature.name) for place, feature in enumerate(config.features)]
    for field, name in [("label.column", config.label.column), *wanted]:
        if name not in columns:
            raise field_error(field, f"one of data.columns: {', '.join(columns)}", name)


def _libsvm(config: JobConfig) -> None:
    if config.data.format != "libsvm":
        return
    only = config.features[0]
    if len(config.features) != 1 or not isinstance(only, SequenceFeature):
        kinds = [feature.kind for feature in config.features]
        raise field_error("features", "exactly one sequence feature, which takes all ids of a libsvm line", kinds)
    if only.separator != "|":
        raise field_error("features.0.separator", "no separator with format libsvm", only.separator)


def _group_by(config: JobConfig) -> None:
    name = config.data.group_by
    if name is None:
        return
    categorical = [feature.name for feature in config.features if isinstance(feature, CategoricalFeature)]
    if name not in categorical:
        raise field_error("data.group_by", f"a categorical feature ({', '.join(categorical) or 'there is none'})", name)


def _valid_set(config: JobConfig) -> None:
    watchers: list[tuple[str, str]] = []
    if config.training.early_stopping is not None:
        watchers.append(("training.early_stopping", config.training.early_stopping.metric))
    if isinstance(config.training.lr_schedule, PlateauSchedule):
        watchers.append(("training.lr_schedule", config.training.lr_schedule.metric))
    for field, metric in watchers:
        if not config.data.valid:
            raise field_error("data.valid", f"a list of at least one path or glob ({field} watches it)", [])
        if metric == "gauc" and config.data.group_by is None:
            raise field_error(f"{field}.metric", "auc or logloss (gauc needs data.group_by)", metric)


def _batch_norm(config: JobConfig) -> None:
    if config.model.batch_norm and config.training.batch_size == 1:
        raise field_error("training.batch_size", "an integer >= 2 (model.batch_norm is on)", 1)


def _tables(config: JobConfig) -> None:
    known = ("default", *config.table_names())
    for name, settings in config.tables.items():
        if name not in known:
            raise field_error(f"tables.{name}", f"a table of the features: {', '.join(known)}", name)
        if settings.dim is not None and settings.dim != config.model.embedding_dim:
            wanted = f"model.embedding_dim ({config.model.embedding_dim})"
            raise field_error(f"tables.{name}.dim", wanted, settings.dim, note="another dim is not available yet")
    check_evictions(config.tables)


_CHECKS: tuple[Callable[[JobConfig], None], ...] = (
    _names,
    _model_fields,
    _slots,
    _bucketize_tables,
    _columns,
    _libsvm,
    _group_by,
    _valid_set,
    _batch_norm,
    _tables,
)
