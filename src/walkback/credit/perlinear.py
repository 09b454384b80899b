"""Per-Linear feedback: a Linear whose backward pass uses a feedback matrix in place of its weight.

On a residual network this differs from block-level feedback: the identity skip still transports credit exactly.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from walkback.nets.network import Network


class _FeedbackLinear(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor) -> None:
        x, _, _, feedback = inputs
        ctx.save_for_backward(x, feedback)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, feedback = ctx.saved_tensors
        rows, columns = grad.flatten(0, -2), x.flatten(0, -2)
        return F.linear(grad, feedback), rows.mT @ columns, rows.sum(0), None


def feedback_linear(x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
    """x W^T + b; in the backward pass `feedback` [fan_in, fan_out] takes the place of W^T in the input's gradient."""
    result: Tensor = _FeedbackLinear.apply(x, weight, bias, feedback)  # type: ignore[no-untyped-call]
    return result


def refuses_no_linears(net: Network) -> str | None:
    """Why a per-Linear rule is not defined on this network; None if it is."""
    return None if net.block_linears else "its feedback goes through Linears, and the blocks have none"
