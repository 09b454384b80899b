"""Per-layer feedback: a Linear or convolution whose backward pass uses a feedback matrix in place of its weight.

On a residual network this differs from block-level feedback: the identity skip still transports credit exactly.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from walkback.nets.network import Convolution


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


class _FeedbackConvolution(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor, how: Convolution) -> Tensor:
        return F.conv2d(x, weight, bias, how.stride, how.padding, how.dilation, how.groups)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor, Convolution], output: Tensor) -> None:
        x, _, _, feedback, how = inputs
        ctx.save_for_backward(x, feedback)
        ctx.how = how

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, feedback = ctx.saved_tensors
        how: Convolution = ctx.how
        # Only the input's gradient depends on the kernel, and only the kernel's and bias's on the input.
        with_feedback, of_weight, of_bias = torch.ops.aten.convolution_backward(
            grad,
            x,
            feedback,
            [feedback.shape[0]],
            how.stride,
            how.padding,
            how.dilation,
            False,
            [0, 0],
            how.groups,
            [True, True, True],
        )
        return with_feedback, of_weight, of_bias, None, None


def feedback_convolution(x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor, how: Convolution) -> Tensor:
    """A convolution; in the backward pass `feedback`, shaped like the kernel, takes its place in the input's
    gradient."""
    result: Tensor = _FeedbackConvolution.apply(x, weight, bias, feedback, how)  # type: ignore[no-untyped-call]
    return result
