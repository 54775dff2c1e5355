"""The optimizers' update of a block of dense parameters, in place.

Letters: P parameters of the block.
"""

from __future__ import annotations

import numpy as np

from geartrain.types import Floats
from kernels.checks import mismatch, require_array, require_output
from kernels.explain import native
from kernels.update_rule import DENSE_KINDS, UpdateRule, dense_coefficients

NUM_DENSE_STATES = {"sgd": 0, "adagrad": 1, "adam": 2, "average": 0}
"""State vectors per parameter: adagrad has the sum of squares, adam the first and the second moment."""


def apply_dense(params: Floats, grads: Floats, states: Floats, kind: str, rule: UpdateRule) -> None:
    """Update `params` and `states` in place from gradient sums.

    `params`, `grads` float32[P]; `states` float32[NUM_DENSE_STATES[kind], P]; `kind` one of DENSE_KINDS. `adam` and
    `adagrad` are those of torch.optim; `average` moves running moments: p += step_scale * 0.1 * (sum / divisor - p).
    Raises KernelError on another dtype, shape or kind.
    """
    if kind not in DENSE_KINDS:
        raise mismatch("kind", f"one of {', '.join(DENSE_KINDS)}", kind)
    require_output("params", params, np.float32, None)
    require_array("grads", grads, np.float32, len(params))
    require_output("states", states, np.float32, NUM_DENSE_STATES[kind], len(params))
    update = getattr(native, f"apply_dense_{kind}")
    update(params, grads, states, dense_coefficients(kind, rule))
