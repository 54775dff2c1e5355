"""The published form of a config loads, and what it shows as usual values are the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from geartrain.config import load_config
from geartrain.config.cluster import CheckpointConfig, CompressionConfig, PortraitConfig, RoutingConfig
from geartrain.config.sync import SyncConfig
from geartrain.config.training import TrainingConfig

PUBLISHED = """
name: frappe-deepfm
features:                      # order is the model's slot order
  - {name: user, kind: categorical}                     # any integer or string value; table defaults to the name
  - {name: price, kind: numeric, transform: log1p}
  - {name: history, kind: sequence, table: item, separator: "|", max_length: 50, pooling: mean}
label: click                   # or {column: income, positive: [">50K", ">50K."]}
data:
  root: ${GEARTRAIN_DATA}/frappe
  format: csv                  # csv | tsv | parquet | libsvm
  header: true                 # or columns: [label, i1, ...]; separator, strip_whitespace, missing: ["", "?"] for text
  shuffle: true                # seeded, per pass
  train: ["train/*.csv"]       # paths or globs under root
  valid: [valid.csv]
  test: [test.csv]
model:
  type: deepfm                 # lr | wide_deep | deepfm | dcn | dlrm | din | mmoe
  embedding_dim: 16
  hidden: [256, 128, 64]
  dropout: 0.0
  batch_norm: false
training:
  passes: 3
  batch_size: 4096             # of the whole cluster
  dense_optimizer: {type: adam, lr: 0.001}
  sparse_optimizer: {type: rowwise_adagrad, lr: 0.05, l2: 0.0}
  lr_schedule: {type: constant}
  seed: 1
  early_stopping: {metric: auc, patience: 1}             # optional, on valid
  precision: auto              # auto | fp32 | bf16 | fp16
tables:
  default: {row_dtype: fp32, initializer: {type: uniform, range: 0.01}, admission: {type: always}, expiry: {type: never}, max_rows: null}
heterogeneous: true
sync: {mode: hybrid, group_size: auto, window_ms: auto, staleness_decay: 0.9, max_staleness: auto, pipeline_depth: 0}
compression: {embedding: auto, dense: fp32, error_feedback: true}
portrait: {num_probes: 20, update_every_steps: 100, initial: {w0: {samples_per_s: 3000}}}
routing: {every_steps: 200, max_over_mean: 1.2}
replication: 1
checkpoint: {every: pass, keep: 3, directory: checkpoints}
"""  # noqa: E501


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data = tmp_path / "data"
    (data / "frappe").mkdir(parents=True)
    monkeypatch.setenv("GEARTRAIN_DATA", str(data))
    file = tmp_path / "job.yaml"
    file.write_text(PUBLISHED)
    return file


def test_published_config_loads_with_its_values(published: Path, tmp_path: Path) -> None:
    config = load_config(published)
    assert config.name == "frappe-deepfm"
    assert [(feature.name, feature.kind, feature.table) for feature in config.features] == [
        ("user", "categorical", "user"),
        ("price", "numeric", None),
        ("history", "sequence", "item"),
    ]
    assert config.label.column == "click"
    assert config.label.positive is None
    assert config.data.root == str((tmp_path / "data" / "frappe").resolve())
    assert config.data.train == ("train/*.csv",)
    assert config.model.hidden == (256, 128, 64)
    assert config.training.early_stopping is not None
    assert config.training.early_stopping.patience == 1
    assert {worker: one.samples_per_s for worker, one in config.portrait.initial.items()} == {"w0": 3000.0}


def test_published_values_are_the_defaults(published: Path) -> None:
    config = load_config(published)
    assert config.training.model_copy(update={"early_stopping": None}) == TrainingConfig()
    assert config.sync == SyncConfig()
    assert config.compression == CompressionConfig()
    assert config.portrait.model_copy(update={"initial": {}}) == PortraitConfig()
    assert config.routing == RoutingConfig()
    assert config.checkpoint == CheckpointConfig()
    assert config.model == type(config.model)(type="deepfm")
    assert config.table_specs() == config.model_copy(update={"tables": {}}).table_specs()
