"""Batched float32 products on a GPU's tensor cores, at float32's accuracy.

A library's float32 product leaves the tensor cores idle. They multiply short floats, but a float32 is the sum of two
TF32 or of three bfloat16 numbers: three or six short products, added up in float32, are a product at least as exact as
the library's own (against float64, on an H200: 0.7 to 2.2e-7 where the library has 2 to 10e-7), in 0.6 to 0.85 of its
time. That is not TF32, which keeps the first of them alone and is for runs that ask for it.

Many tiny products, such as an attention's, stay with the library. What is done here and how is a function of shapes and
strides; nothing is chosen by timing it, so a run that is continued elsewhere computes the same bits.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

_NAME = "walkback::product"
"""The operation in torch's registry; on the CPU it is torch's own product."""
_TILE, DEEP = 64, 32
"""Results are computed in squares of this size, and their terms so many at a time."""
_LEAST = 64
"""Rows, columns and terms of the smallest products that were measured to be quicker here; of 32 they are not."""
MULTIPROCESSORS = 132
"""Of the GPU the choices below were measured on."""
CAPABILITY = (9, 0)
"""What a GPU must be capable of: on older ones this was never tried."""


class KernelSettings(NamedTuple):
    """How the kernel is started: its tile, the threads and the loads under way at once, and the short floats used."""

    tall: int
    wide: int
    deep: int
    warps: int
    stages: int
    precision: str


SMALL_MATMUL = KernelSettings(32, 64, DEEP, 4, 4, "tf32x3")
SQUARE = KernelSettings(64, 64, DEEP, 4, 3, "tf32x3")
TALL = KernelSettings(128, 64, DEEP, 4, 3, "tf32x3")
MIXED = KernelSettings(64, 64, DEEP, 4, 3, "bf16x6")
"""For factors that do not both lie along their terms: tensor cores take transposed bfloat16, but no transposed TF32."""


def use_tensorcore_matmul(program: GraphModule) -> int:
    """Rewrite the program's batched products in place, where `takes` says so; how many."""
    bmm = torch.ops.aten.bmm.default
    found = [node for node in program.graph.nodes if node.target is bmm]
    taken = [node for node in found if takes(*(factor.meta["val"] for factor in node.args))]
    for node in taken:
        node.target = TENSORCORE_MATMUL
    return len(taken)


def tensorcore_matmul(left: Tensor, right: Tensor) -> Tensor:
    """The product [b, m, k] x [b, k, n], done the way a fleet's program does it."""
    return TENSORCORE_MATMUL(left, right) if takes(left, right) else torch.bmm(left, right)


def takes(left: Tensor, right: Tensor) -> bool:
    """Whether a product is done here: in float32 on a GPU that can, and of factors that fill the kernel's tiles."""
    is_fine = left.dtype == right.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    return is_fine and _fills(left, right) and has_kernel(left.device)


def _fills(left: Tensor, right: Tensor) -> bool:
    """Neither short on any side, nor scattered in memory, nor mostly beside the tiles' edges."""
    (batch, rows, terms), columns = left.shape, right.shape[-1]
    is_dense = 1 in left.stride()[1:] and 1 in right.stride()[1:]
    work = math.prod(math.ceil(size / tile) * tile for size, tile in ((rows, _TILE), (terms, DEEP), (columns, _TILE)))
    return batch > 0 and min(rows, terms, columns) >= _LEAST and is_dense and 2 * rows * terms * columns >= work


@cache
def has_kernel(device: torch.device) -> bool:
    """Whether Triton can be used for this device, and knows the sums of short floats."""
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip:
        return False
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        return False
    try:
        from triton.backends.nvidia.compiler import CUDAOptions
        from triton.runtime import driver

        driver.active.get_current_target()
    except Exception:  # There may be no Triton, or none of what it needs: a C compiler, Python's headers, a driver.
        return False
    known = getattr(CUDAOptions, "allowed_dot_input_precisions", ())
    return {SMALL_MATMUL.precision, MIXED.precision} <= {*known}


def kernel_settings(left: Tensor, right: Tensor) -> KernelSettings:
    """The quickest on an H200 for the layouts and sizes of a fleet's products."""
    squares = left.shape[0] * math.ceil(left.shape[1] / _TILE) * math.ceil(right.shape[2] / _TILE)
    if squares < MULTIPROCESSORS:
        return SMALL_MATMUL
    if not left.stride(2) == right.stride(1) == 1:
        return MIXED
    is_tall = squares >= 2 * MULTIPROCESSORS and math.ceil(left.shape[1] / _TILE) % 2 == 0
    return TALL if is_tall else SQUARE


def _shape(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], left.shape[1], right.shape[2])


def _on_gpu(left: Tensor, right: Tensor) -> Tensor:
    from walkback.training.gpu.tensorcore_kernel import product_tile

    (batch, rows, terms), columns = left.shape, right.shape[-1]
    tall, wide, deep, warps, stages, precision = kernel_settings(left, right)
    is_even = rows % tall == columns % wide == terms % deep == 0
    result = left.new_empty(batch, rows, columns)
    tiles = batch * math.ceil(rows / tall) * math.ceil(columns / wide)
    sizes = (rows, terms, columns, *left.stride(), *right.stride())
    with torch.cuda.device(left.device):
        product_tile[(tiles,)](
            left, right, result, *sizes, tall, wide, deep, precision, is_even, num_warps=warps, num_stages=stages
        )
    return result


# Torch's compiler may hand over whatever strides are cheapest, as it does to its own products: told to keep to those of
# the trace, it would copy transposed views.
torch.library.define(
    _NAME,
    "(Tensor left, Tensor right) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)
torch.library.register_fake(_NAME, _shape)
torch.library.impl(_NAME, "cpu", torch.bmm)
torch.library.impl(_NAME, "cuda", _on_gpu)
TENSORCORE_MATMUL = torch.ops.walkback.product.default
