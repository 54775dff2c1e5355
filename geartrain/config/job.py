"""The whole config of a job, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from geartrain.config.checks import check_job
from geartrain.config.cluster import CheckpointConfig, CompressionConfig, PortraitConfig, RoutingConfig
from geartrain.config.data import DataConfig, Label
from geartrain.config.features import Feature
from geartrain.config.model import ModelConfig, row_dim
from geartrain.config.section import Expect, Many, Section
from geartrain.config.sync import SyncConfig
from geartrain.config.tables import (
    TableConfig,
    table_admission,
    table_expiry,
    table_initializer,
    table_limit,
    table_optimizer,
    table_row_dtype,
)
from geartrain.config.training import TrainingConfig
from geartrain.config.unsupported import refuse_unsupported
from geartrain.config.validation import validate
from geartrain.wire.messages import TableSpec

JobName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"),
    Expect("a name of 1 to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"),
]


class JobConfig(Section):
    """A training job. Build one with `load_config`, `parse_config` or `from_resolved`: they also check what concerns
    several fields at once (`geartrain.config.checks`)."""

    name: JobName = "job"
    features: Annotated[Many[Feature], Field(min_length=1)]
    """In the order of the model's slots."""
    label: Label
    data: DataConfig
    model: ModelConfig
    training: TrainingConfig = TrainingConfig()
    tables: dict[str, TableConfig] = Field(default_factory=dict)
    """Settings per table; `default` is for all tables that have none of their own."""
    heterogeneous: bool = True
    """Whether workers are measured, and shares and groups follow their speeds. false: equal shares in one group per
    vendor, or in groups of sync.group_size."""
    sync: SyncConfig = SyncConfig()
    compression: CompressionConfig = CompressionConfig()
    portrait: PortraitConfig = PortraitConfig()
    routing: RoutingConfig = RoutingConfig()
    replication: Annotated[int, Field(ge=1, le=1), Expect("1")] = 1
    checkpoint: CheckpointConfig = CheckpointConfig()

    @staticmethod
    def from_resolved(fields: Mapping[str, Any]) -> JobConfig:
        """The config that `to_dict` described: no environment variable and no path is looked at again.

        Raises ConfigError with the facts field, value, expected.
        """
        refuse_unsupported(fields)
        config = validate(JobConfig, fields)
        check_job(config)
        return config

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data with every field, from which `from_resolved` makes an equal config."""
        return self.model_dump(mode="json")

    def table_names(self) -> tuple[str, ...]:
        """Tables in the order in which the features first use them."""
        return tuple(
            dict.fromkeys(table for table in (feature.table for feature in self.features) if table is not None)
        )

    def table_specs(self) -> list[TableSpec]:
        """What a server needs to create each table, in the order of `table_names`.

        Its mappings have the fields of the config's sections: type, and those of that type.
        """
        default = self.tables.get("default", TableConfig())
        return [self._table_spec(name, self.tables.get(name, TableConfig()), default) for name in self.table_names()]

    def _table_spec(self, name: str, own: TableConfig, default: TableConfig) -> TableSpec:
        max_rows, eviction = table_limit(own, default)
        return TableSpec(
            name=name,
            dim=row_dim(self.model),
            optimizer=table_optimizer(own, default, self.training.sparse_optimizer).model_dump(mode="json"),
            initializer=table_initializer(own, default).model_dump(mode="json"),
            seed=self.training.seed,
            row_dtype=table_row_dtype(own, default),
            admission=table_admission(own, default).model_dump(mode="json"),
            expiry=table_expiry(own, default).model_dump(mode="json"),
            max_rows=max_rows,
            eviction=eviction,
        )


def config_json_schema() -> dict[str, Any]:
    """The JSON schema of a config file (2020-12)."""
    return JobConfig.model_json_schema()
