"""NumPy definition of the update of a dense block."""

from __future__ import annotations

from geartrain.types import Floats
from kernels.reference.optimizers import rounded, update
from kernels.update_rule import UpdateRule, dense_coefficients


def apply_dense(params: Floats, grads: Floats, states: Floats, kind: str, rule: UpdateRule) -> None:
    """A dense block is rows of one column: states [k, P] are its transposed row states."""
    update(kind, params[:, None], states.T, grads[:, None], rounded(dense_coefficients(kind, rule)))
