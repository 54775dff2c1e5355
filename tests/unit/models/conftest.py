"""Models and inputs for the tests of models: small, seeded, with every kind of input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from dense_workers.models import CtrModel, build_model
from geartrain.config.model import ModelConfig

Build = Callable[..., CtrModel]
Draw = Callable[[CtrModel, int], tuple[Tensor, Tensor, Tensor]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These tensors are tiny: a second thread only waits for a core that other tests use."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def build() -> Build:
    """A model of a type: 5 slots, embedding dim 4, 6 numeric inputs, hidden 16-8, unless told otherwise."""

    def make(kind: str, seed: int = 0, num_slots: int = 5, num_numeric: int = 6, **fields: object) -> CtrModel:
        sizes: dict[str, object] = {"embedding_dim": 4, "hidden": [16, 8]}
        config = ModelConfig.model_validate({"type": kind, **sizes, **fields})
        generator = torch.Generator().manual_seed(seed)
        return build_model(config, num_slots=num_slots, num_numeric_inputs=num_numeric, generator=generator)

    return make


@pytest.fixture
def draw() -> Draw:
    """Inputs that fit a model: rows [B, S, D] that require a gradient, numeric [B, F], labels [B]."""

    def make(model: CtrModel, num_samples: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(7)
        inputs = model.inputs
        rows = torch.randn(num_samples, inputs.num_slots, inputs.row_dim, generator=generator).requires_grad_()
        numeric = torch.randn(num_samples, inputs.num_numeric, generator=generator)
        labels = (torch.rand(num_samples, generator=generator) < 0.4).float()
        return rows, numeric, labels

    return make
