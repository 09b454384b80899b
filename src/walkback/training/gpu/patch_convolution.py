"""Weight gradients of a network's first convolution as one product.

For several models together a library has only a slow kernel where there are few channels, as in images: 0.34 ms of a
step of 4.9 for three SmallCNNs on an H200. What a kernel is laid over, a patch for each pixel of the output, is small
there, and the gradient is a product of the output's gradient and the patches, a sample at a time so that nothing is
moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

from walkback.training.gpu.inlining import arguments, replace_pullback

CONV_BACKWARD = torch.ops.aten.convolution_backward.default
LARGEST_PATCHES = 64
"""Numbers in a patch up to which patches are taken: for each pixel of the output there is one."""


def use_patches(program: GraphModule) -> int:
    """Rewrite, in place, the pullbacks of a traced program that can be done so; returns how many there were."""
    found = [node for node in program.graph.nodes if node.target is CONV_BACKWARD and _is_eligible(node)]
    for node in found:
        credit, x, weight, _, stride, padding, *_, groups, _ = arguments(node)
        kernel = tuple(weight.meta["val"].shape[2:])
        by_product = partial(patch_weight_gradient, kernel=kernel, stride=stride, padding=padding, groups=groups)
        replace_pullback(node, {1: (by_product, [credit, x])})
    program.graph.eliminate_dead_code()
    program.recompile()
    return len(found)


def patch_weight_gradient(
    credit: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], groups: int
) -> Tensor:
    """Of a convolution of x [n, groups * in, height, width] whose output has the gradient `credit`."""
    (batch, channels), inner = credit.shape[:2], x.shape[1] // groups
    patches = F.unfold(x, tuple(kernel), padding=tuple(padding), stride=tuple(stride))
    credits = credit.reshape(batch * groups, channels // groups, -1)
    each = torch.bmm(credits, patches.reshape(batch * groups, -1, patches.shape[-1]).transpose(1, 2))
    return each.view(batch, channels, -1).sum(0).view(channels, inner, *kernel)


def _is_eligible(node: Node) -> bool:
    """Several models in one convolution, small patches, and nobody asks for the input's gradient."""
    credit, x, weight = (operand.meta["val"] for operand in arguments(node)[:3])
    dilation, transposed, _, groups, wanted = arguments(node)[6:]
    return (
        wanted[1]
        and not wanted[0]
        and not transposed
        and groups > 1
        and weight.dim() == 4
        and weight[0].numel() <= LARGEST_PATCHES
        and all(each == 1 for each in dilation)
        and credit.numel() * x.numel() * weight.numel() > 0
    )
