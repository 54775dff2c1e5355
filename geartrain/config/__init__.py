"""The config of a job: read, checked and resolved in one place."""

from geartrain.config.cluster import CheckpointConfig, CompressionConfig, PortraitConfig, RoutingConfig
from geartrain.config.data import DataConfig, LabelSpec
from geartrain.config.features import CategoricalFeature, Feature, NumericFeature, SequenceFeature
from geartrain.config.job import JobConfig, config_json_schema
from geartrain.config.loading import load_config, parse_config, read_config
from geartrain.config.model import ModelConfig, has_first_order, row_dim
from geartrain.config.optimizer import (
    Adagrad,
    Adam,
    DenseOptimizer,
    Ftrl,
    RowwiseAdagrad,
    RowwiseAdam,
    Sgd,
    SparseAdagrad,
    SparseAdam,
    SparseOptimizer,
    SparseSgd,
)
from geartrain.config.paths import default_allowed_roots, resolve_inside
from geartrain.config.schedule import (
    ConstantSchedule,
    CosineSchedule,
    LrSchedule,
    Metric,
    PlateauSchedule,
    WarmupSchedule,
)
from geartrain.config.sync import SyncConfig
from geartrain.config.tables import TableConfig
from geartrain.config.training import EarlyStopping, TrainingConfig

__all__ = [
    "Adagrad",
    "Adam",
    "CategoricalFeature",
    "CheckpointConfig",
    "CompressionConfig",
    "ConstantSchedule",
    "CosineSchedule",
    "DataConfig",
    "DenseOptimizer",
    "EarlyStopping",
    "Feature",
    "Ftrl",
    "JobConfig",
    "LabelSpec",
    "LrSchedule",
    "Metric",
    "ModelConfig",
    "NumericFeature",
    "PlateauSchedule",
    "PortraitConfig",
    "RoutingConfig",
    "RowwiseAdagrad",
    "RowwiseAdam",
    "SequenceFeature",
    "Sgd",
    "SparseAdagrad",
    "SparseAdam",
    "SparseOptimizer",
    "SparseSgd",
    "SyncConfig",
    "TableConfig",
    "TrainingConfig",
    "WarmupSchedule",
    "config_json_schema",
    "default_allowed_roots",
    "has_first_order",
    "load_config",
    "parse_config",
    "read_config",
    "resolve_inside",
    "row_dim",
]
