"""All dense values of a model as one flat vector, and their gradients as another.

Parameters become views of the vectors, so nothing is gathered or scattered in a step: a write reaches every parameter,
and the backward pass adds straight into the flat gradient. Shape letter: P length of the flat vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dense_workers.models.batch_norm import MomentBatchNorm
from geartrain.errors import KernelError
from geartrain.types import Floats
from geartrain.wire.messages import DenseSegment


class DenseLayout:
    """Owns the flat vector float32[P] = [parameters | running averages] of a model and its flat gradient.

    The parameters come in the model's order; the running averages of batch norm stand behind them as segments of kind
    `average`, whose "gradient" is the sum of the batch's moments. Bind a model once, after it is on its device, and do
    not move it or drop its gradients (`zero_grad`) afterwards.
    """

    def __init__(self, model: nn.Module) -> None:
        fields = list(_parameters(model)) + list(_averages(model))
        self.segments = _segments(fields)
        self.num_values = self.segments[-1].stop if self.segments else 0
        device = fields[0].value.device if fields else torch.device("cpu")
        self._values = torch.empty(self.num_values, device=device)
        self._gradient = torch.zeros(self.num_values, device=device)
        self._bound: list[tuple[nn.Parameter, Tensor]] = []
        with torch.no_grad():
            for field, segment in zip(fields, self.segments, strict=True):
                value = self._values[segment.start : segment.stop].view(segment.shape)
                gradient = self._gradient[segment.start : segment.stop].view(segment.shape)
                value.copy_(field.value)
                self._bind(field, value, gradient)

    def write(self, values: Floats) -> None:
        """Overwrite all dense values by `values` float32[P], which is copied."""
        self._check("values", values)
        # torch warns of read-only arrays (what came from the wire often is), although it only reads here.
        self._values.copy_(torch.from_numpy(values if values.flags.writeable else values.copy()))

    def read(self) -> Floats:
        """A copy of all dense values, float32[P]."""
        values: Floats = self._values.cpu().numpy().copy()
        return values

    def zero_gradient(self) -> None:
        """Begin a step: gradients and moments are 0."""
        self._gradient.zero_()

    def read_gradient(self, out: Floats) -> None:
        """Copy the gradient float32[P] of the backward passes since `zero_gradient` into `out`.

        RuntimeError if a parameter's gradient no longer lies in the flat vector: it would be missing here.
        """
        self._check("out", out)
        for parameter, gradient in self._bound:
            if parameter.grad is None or parameter.grad.data_ptr() != gradient.data_ptr():
                raise RuntimeError("a parameter's gradient was replaced: zero it with DenseLayout.zero_gradient only")
        torch.from_numpy(out).copy_(self._gradient)

    def _bind(self, field: _Field, value: Tensor, gradient: Tensor) -> None:
        if isinstance(field.value, nn.Parameter):
            field.value.data = value
            field.value.grad = gradient
            self._bound.append((field.value, gradient))
        else:
            setattr(field.owner, field.attribute, value)
            setattr(field.owner, _MOMENTS[field.attribute], gradient)

    def _check(self, argument: str, vector: Floats) -> None:
        if vector.shape != (self.num_values,) or vector.dtype != np.float32:
            expected, got = f"float32[{self.num_values}]", f"{vector.dtype}{list(vector.shape)}"
            raise KernelError(
                f"{argument} of the dense layout must be {expected}, not {got}",
                argument=argument,
                expected=expected,
                got=got,
            )


_MOMENTS = {"mean": "sum", "mean_square": "square_sum"}
"""The running averages of a batch norm and where it adds the moments that belong to them."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A tensor of the model: attribute `attribute` of module `owner`."""

    name: str
    owner: nn.Module
    attribute: str
    value: Tensor


def _parameters(model: nn.Module) -> Iterator[_Field]:
    for name, parameter in model.named_parameters():
        owner, _, attribute = name.rpartition(".")
        yield _Field(name, model.get_submodule(owner), attribute, parameter)


def _averages(model: nn.Module) -> Iterator[_Field]:
    for name, module in model.named_modules():
        if isinstance(module, MomentBatchNorm):
            for attribute in _MOMENTS:
                yield _Field(f"{name}.{attribute}", module, attribute, getattr(module, attribute))


def _segments(fields: list[_Field]) -> list[DenseSegment]:
    segments = []
    start = 0
    for field in fields:
        stop = start + field.value.numel()
        kind = "parameter" if isinstance(field.value, nn.Parameter) else "average"
        segments.append(DenseSegment(field.name, tuple(field.value.shape), start, stop, kind))
        start = stop
    return segments
