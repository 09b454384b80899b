"""The weight gradient of a network's first convolution as one batched matmul (im2col).

For several models with few input channels, as in images, cuDNN has only a slow kernel: 0.34 ms of a step of 4.9 ms for
three SmallCNNs on an H200. The patches that the convolution kernel covers, one for each output pixel, are small there,
and the weight gradient is the matmul of the output's gradient and the patches, one per sample so that no data is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

from walkback.training.gpu.inlining import arguments, replace_conv_backward

CONV_BACKWARD = torch.ops.aten.convolution_backward.default
MAX_PATCH_SIZE = 64
"""The largest number of values in a patch for which patches are used: there is one patch for each output pixel."""


def use_patches(program: GraphModule) -> int:
    """Rewrite the eligible convolution backward passes of a traced program in place; returns how many there were."""
    found = [node for node in program.graph.nodes if node.target is CONV_BACKWARD and _is_eligible(node)]
    for node in found:
        credit, x, weight, _, stride, padding, *_, groups, _ = arguments(node)
        kernel = tuple(weight.meta["val"].shape[2:])
        weight_gradient = partial(patch_weight_gradient, kernel=kernel, stride=stride, padding=padding, groups=groups)
        replace_conv_backward(node, {1: (weight_gradient, [credit, x])})
    program.graph.eliminate_dead_code()
    program.recompile()
    return len(found)


def patch_weight_gradient(
    credit: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], groups: int
) -> Tensor:
    """The weight gradient of a convolution of x [n, groups * in, height, width] whose output has gradient `credit`."""
    (batch, channels), inner = credit.shape[:2], x.shape[1] // groups
    patches = F.unfold(x, tuple(kernel), padding=tuple(padding), stride=tuple(stride))
    credits = credit.reshape(batch * groups, channels // groups, -1)
    each = torch.bmm(credits, patches.reshape(batch * groups, -1, patches.shape[-1]).transpose(1, 2))
    return each.view(batch, channels, -1).sum(0).view(channels, inner, *kernel)


def _is_eligible(node: Node) -> bool:
    """Several models in one convolution, small patches, and the input's gradient is not needed."""
    credit, x, weight = (operand.meta["val"] for operand in arguments(node)[:3])
    dilation, transposed, _, groups, wanted = arguments(node)[6:]
    return (
        wanted[1]
        and not wanted[0]
        and not transposed
        and groups > 1
        and weight.dim() == 4
        and weight[0].numel() <= MAX_PATCH_SIZE
        and all(each == 1 for each in dilation)
        and credit.numel() * x.numel() * weight.numel() > 0
    )
