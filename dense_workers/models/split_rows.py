"""From rows with a first-order column to the tower's input and the shallow logit, in few passes over memory.

A row is [first-order weight | embedding]. On a CPU the cost of what stands beside the tower is memory traffic, so one
autograd function copies the embeddings once, straight into the tower's input, and writes the gradient of the rows
once, contiguously. Composed of plain operations it costs two to three times as much.

Shape letters: B samples of the batch, S slots, D row dim, E = D - 1 embedding dim, F numeric inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def split_rows(rows: Tensor, numeric: Tensor, *, pairwise: bool) -> tuple[Tensor, Tensor]:
    """The tower's input [B, S*E + F] and the shallow logit [B] of `rows` [B, S, D] and `numeric` [B, F].

    The logit is the sum of the first-order weights; with `pairwise` also the sum over all pairs of slots of the dot
    product of their embeddings, computed as (|sum|^2 - sum of |.|^2) / 2 (Rendle, Factorization Machines, 2010, eq. 5).
    Both arguments are read only. Also under autocast all of it is in float32: these sums take no time beside the tower
    and lose most in few bits.
    """
    with torch.autocast(rows.device.type, enabled=False):
        x, logit = _SplitRows.apply(rows, numeric, pairwise)  # type: ignore[no-untyped-call]
    return x, logit


class _SplitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, numeric: Tensor, pairwise: bool) -> tuple[Tensor, Tensor]:
        num_samples, num_slots, dim = rows.shape
        width = num_slots * (dim - 1)
        x = rows.new_empty(num_samples, width + numeric.shape[1])
        flat = x[:, :width]
        embeddings = flat.view(num_samples, num_slots, dim - 1)
        embeddings.copy_(rows[:, :, 1:])
        x[:, width:] = numeric
        logit = rows[:, :, 0].sum(1)
        ctx.shape = rows.shape
        ctx.pairwise = pairwise
        if pairwise:
            total = embeddings.sum(1)
            squares = torch.linalg.vecdot(flat, flat)
            logit.add_(torch.linalg.vecdot(total, total).sub_(squares), alpha=0.5)
            ctx.save_for_backward(x, total)
        return x, logit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_x: Tensor, grad_logit: Tensor) -> tuple[Tensor, Tensor | None, None]:
        num_samples, num_slots, dim = ctx.shape
        width = num_slots * (dim - 1)
        grad_embeddings = grad_x[:, :width].view(num_samples, num_slots, dim - 1)
        grad_rows = grad_x.new_empty(num_samples, num_slots, dim)
        grad_rows[:, :, 0] = grad_logit[:, None]
        target = grad_rows[:, :, 1:]
        if ctx.pairwise:  # the gradient of the pairs at slot s is grad_logit * (sum of all embeddings - that of s)
            x, total = ctx.saved_tensors
            embeddings = x[:, :width].view(num_samples, num_slots, dim - 1)
            torch.addcmul(grad_embeddings, embeddings, grad_logit[:, None, None], value=-1.0, out=target)
            target.add_((total * grad_logit[:, None])[:, None])
        else:
            target.copy_(grad_embeddings)
        return grad_rows, grad_x[:, width:] if ctx.needs_input_grad[1] else None, None
