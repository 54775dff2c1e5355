"""What every CTR model has in common: its inputs, its one output, its seeded randomness.

Shape letters: B samples of the batch, S slots, D row dim, F numeric inputs (values and missing indicators).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from dense_workers.models.dropout import SeededDropout
from geartrain.errors import KernelError


@dataclass(frozen=True, slots=True)
class InputShape:
    """The sizes of a model's inputs; `row_dim` counts the first-order column where the model has one."""

    num_slots: int
    row_dim: int
    num_numeric: int


class CtrModel(nn.Module):
    """A model from pooled rows and numeric inputs to one logit per sample.

    It holds only dense parameters. The rows come from outside and their gradient is read from `rows.grad`.
    """

    def __init__(self, inputs: InputShape) -> None:
        super().__init__()
        self.inputs = inputs

    def forward(self, rows: Tensor, numeric: Tensor) -> Tensor:
        """Logits float32[B] of `rows` float32[B, S, D] and `numeric` float32[B, F]; B may be 0.

        The arguments are read only. Raises KernelError where a shape is not that of `inputs`.
        """
        expected = (self.inputs.num_slots, self.inputs.row_dim)
        if rows.dim() != 3 or tuple(rows.shape[1:]) != expected:
            raise _wrong_shape("rows", f"[B, {expected[0]}, {expected[1]}]", rows)
        if tuple(numeric.shape) != (rows.shape[0], self.inputs.num_numeric):
            raise _wrong_shape("numeric", f"[{rows.shape[0]}, {self.inputs.num_numeric}]", numeric)
        return self.logits(rows, numeric)

    def logits(self, rows: Tensor, numeric: Tensor) -> Tensor:
        """What a model defines: `forward` on inputs of checked shape."""
        raise NotImplementedError

    def seed_step(self, seed: int) -> None:
        """Make dropout in the next training step a function of `seed` (0 <= seed < 2^63); without dropout: nothing."""
        for module in self.modules():
            if isinstance(module, SeededDropout):
                module.seed(seed)


def _wrong_shape(argument: str, expected: str, got: Tensor) -> KernelError:
    shape = list(got.shape)
    return KernelError(
        f"{argument} of a model must have shape {expected}, not {shape}",
        argument=argument,
        expected=expected,
        got=shape,
    )
