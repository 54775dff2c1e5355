"""DeepFM in a plain single-process PyTorch loop: what a cluster's numbers are compared with.

Of the product only what defines the run is used: initial values, keys, the order of the data. The batches, the model's
formula, the loss, the gradients and the optimizers are written out here.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, embedding_bag

from dense_workers.models import build_model
from geartrain.config import JobConfig
from geartrain.config.features import NumericFeature, SequenceFeature
from geartrain.config.model import row_dim
from geartrain.data.permutation import PassOrder
from geartrain.types import Floats, Keys
from kernels.hashing import keys_of_strings
from kernels.initializer import Initializer, initial_rows, initializer_seed


def keys_of(ids: Sequence[str], table: str) -> Keys:
    """The keys of string ids."""
    encoded = [one.encode() for one in ids]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return keys_of_strings(offsets, np.frombuffer(b"".join(encoded), dtype=np.uint8), table)


@dataclass(frozen=True)
class TrainedTable:
    """Rows of ids [R]: values [R, D], and in how many places and positive places each id stood."""

    ids: list[str]
    values: Floats
    shows: Floats
    clicks: Floats


@dataclass(frozen=True)
class Trained:
    tables: dict[str, TrainedTable]
    dense: dict[str, Floats]


def train(config: JobConfig, files: Sequence[Path]) -> Trained:
    """One pass over CSV files, in batches of the config's size."""
    torch.set_num_threads(1)  # for matrices as small as these
    chunks = [list(csv.DictReader(file.open(newline=""))) for file in files]
    run = _Run(config, [row for chunk in chunks for row in chunk])
    order = PassOrder([len(chunk) for chunk in chunks], config.training.seed, 0, config.data.shuffle)
    for start in range(0, order.num_rows, config.training.batch_size):
        stop = min(start + config.training.batch_size, order.num_rows)
        run.step([chunks[chunk][row] for chunk, rows in order.locate(start, stop) for row in rows])
    return run.trained()


class _Run:
    def __init__(self, config: JobConfig, rows: Sequence[Mapping[str, str]]) -> None:
        self._config = config
        self._slots = [feature for feature in config.features if not isinstance(feature, NumericFeature)]
        self._numeric = [feature for feature in config.features if isinstance(feature, NumericFeature)]
        model = build_model(
            config.model,
            num_slots=len(self._slots),
            num_numeric_inputs=2 * len(self._numeric),
            generator=torch.Generator().manual_seed(config.training.seed),
        )
        self._dense = {name: nn.Parameter(value.detach().clone()) for name, value in model.named_parameters()}
        self._dense_optimizer = torch.optim.Adam(self._dense.values(), lr=config.training.dense_optimizer.lr)
        self._ids: dict[str, dict[str, int]] = {}
        self._tables: dict[str, nn.Parameter] = {}
        for slot in self._slots:
            self._ids.setdefault(slot.table, {}).update({one: 0 for row in rows for one in _bag(slot, row)})
        for table, places in self._ids.items():
            self._ids[table] = {one: place for place, one in enumerate(places)}
            initializer = Initializer("uniform", 0.01, initializer_seed(config.training.seed, table))
            values = initial_rows(keys_of(list(places), table), row_dim(config.model), initializer)
            self._tables[table] = nn.Parameter(torch.from_numpy(values))
        self._shows = {table: np.zeros((2, len(places)), dtype=np.float32) for table, places in self._ids.items()}
        self._row_optimizers = [self._row_optimizer(table) for table in self._tables.values()]

    def step(self, rows: Sequence[Mapping[str, str]]) -> None:
        labels = [float(row["label"]) for row in rows]
        optimizers = [self._dense_optimizer, *self._row_optimizers]
        for optimizer in optimizers:
            optimizer.zero_grad()
        logits = self._logits(self._pooled(rows, labels), self._numbers(rows))
        binary_cross_entropy_with_logits(logits, torch.tensor(labels)).backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()

    def trained(self) -> Trained:
        tables = {}
        for table, places in self._ids.items():
            shows, clicks = self._shows[table]
            tables[table] = TrainedTable(list(places), self._tables[table].detach().numpy(), shows, clicks)
        return Trained(tables, {name: value.detach().numpy() for name, value in self._dense.items()})

    def _pooled(self, rows: Sequence[Mapping[str, str]], labels: Sequence[float]) -> Tensor:
        """[B, S, D]"""
        slots = []
        for slot in self._slots:
            bags = [[self._ids[slot.table][one] for one in _bag(slot, row)] for row in rows]
            for bag, label in zip(bags, labels, strict=True):
                for place in bag:
                    self._shows[slot.table][:, place] += (1.0, label)
            slots.append(
                embedding_bag(
                    torch.tensor([place for bag in bags for place in bag], dtype=torch.int64),
                    self._tables[slot.table],
                    torch.tensor(np.cumsum([0, *(len(bag) for bag in bags[:-1])])),
                    mode=slot.pooling if isinstance(slot, SequenceFeature) else "sum",
                    # SparseAdam takes nothing else, the others take dense gradients.
                    sparse=self._config.training.sparse_optimizer.type == "adam",
                )
            )
        return torch.stack(slots, dim=1)

    def _numbers(self, rows: Sequence[Mapping[str, str]]) -> Tensor:
        """[B, 2F]: values, 0 where missing, then 1 where missing."""
        values = np.zeros((len(rows), 2 * len(self._numeric)))
        for place, feature in enumerate(self._numeric):
            for number, row in enumerate(rows):
                if row[feature.name] == "":
                    values[number, len(self._numeric) + place] = 1
                else:
                    x = float(row[feature.name])
                    values[number, place] = np.sign(x) * np.log1p(abs(x)) if feature.transform == "log1p" else x
        return torch.tensor(values, dtype=torch.float32)

    def _logits(self, rows: Tensor, numbers: Tensor) -> Tensor:
        dense = self._dense
        first_order, embeddings = rows[:, :, 0], rows[:, :, 1:]
        x = torch.cat([embeddings.flatten(1), numbers], dim=1)
        for layer in range(len(self._config.model.hidden)):
            x = torch.relu(x @ dense[f"tower.affine.{layer}.weight"].T + dense[f"tower.affine.{layer}.bias"])
        logits = (x @ dense["head.weight"].T + dense["head.bias"]).squeeze(1)
        logits = logits + first_order.sum(1) + numbers @ dense["numeric.weight"]
        for one in range(len(self._slots)):
            for other in range(one):
                logits = logits + (embeddings[:, one] * embeddings[:, other]).sum(1)
        return logits

    def _row_optimizer(self, table: nn.Parameter) -> torch.optim.Optimizer:
        settings = self._config.training.sparse_optimizer
        match settings.type:
            case "sgd":
                return torch.optim.SGD([table], lr=settings.lr)
            case "adagrad":
                return torch.optim.Adagrad([table], lr=settings.lr)
            case "rowwise_adagrad":
                return RowwiseAdagrad([table], lr=settings.lr)
            case "adam":
                return torch.optim.SparseAdam([table], lr=settings.lr)


class RowwiseAdagrad(torch.optim.Optimizer):
    """Adagrad with one accumulator per row, the mean of the squared gradient (as FBGEMM has it)."""

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                total = self.state[table].setdefault("sum", torch.zeros(len(table), 1))
                total += table.grad.square().mean(1, keepdim=True)
                table.sub_(group["lr"] * table.grad / (total.sqrt() + 1e-8))


def _bag(slot: object, row: Mapping[str, str]) -> list[str]:
    """The ids of a sample in a slot; a missing category is one of its own, a missing sequence an empty bag."""
    value = row[slot.name]  # type: ignore[attr-defined]
    if isinstance(slot, SequenceFeature):
        return value.split(slot.separator) if value else []
    return [value]
