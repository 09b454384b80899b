"""Batched float32 matmuls on a GPU's tensor cores, with float32 accuracy.

cuBLAS's float32 matmul does not use the tensor cores. They multiply short floats, but a float32 is the sum of two TF32
or of three bfloat16 numbers: three or six matmuls of short floats, added in float32, are at least as accurate as
cuBLAS (relative error against float64 on an H200: 0.7 to 2.2e-7, cuBLAS 2 to 10e-7), in 0.6 to 0.85 of its time. That
is not TF32, which keeps only the first of them and is used only by runs with dtype=tf32.

Many tiny matmuls, such as those of attention, stay with cuBLAS. Whether and how the kernel is used depends only on
shapes and strides; nothing is chosen by timing, so a run that is resumed on another machine computes the same bits.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

_NAME = "walkback::tensorcore_matmul"
"""The operation's name in torch's registry; on the CPU it is `torch.bmm`."""
_TILE, _TILE_DEPTH = 64, 32
"""Results are computed in square tiles of this size, this many terms at a time."""
_MIN_SIZE = 64
"""Fewest rows, columns and terms with which the kernel was measured to be faster than cuBLAS; with 32 it is slower."""
MULTIPROCESSORS = 132
"""Of the GPU (an H200) on which the settings below were measured."""
CAPABILITY = (9, 0)
"""Minimal CUDA compute capability; the kernel is not tested on older GPUs."""


class KernelSettings(NamedTuple):
    """The kernel's launch settings: tile sizes (rows, columns, terms), warps, pipeline stages, and short floats."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    precision: str


SMALL_MATMUL = KernelSettings(32, 64, _TILE_DEPTH, 4, 4, "tf32x3")
SQUARE = KernelSettings(64, 64, _TILE_DEPTH, 4, 3, "tf32x3")
TALL = KernelSettings(128, 64, _TILE_DEPTH, 4, 3, "tf32x3")
MIXED = KernelSettings(64, 64, _TILE_DEPTH, 4, 3, "bf16x6")
"""For operands that are not both contiguous along the terms: tensor cores accept transposed bfloat16 but not TF32."""


def use_tensorcore_matmul(program: GraphModule) -> int:
    """Replace the program's batched matmuls in place where `uses_kernel` holds; returns how many."""
    bmm = torch.ops.aten.bmm.default
    found = [node for node in program.graph.nodes if node.target is bmm]
    replaced = [node for node in found if uses_kernel(*(factor.meta["val"] for factor in node.args))]
    for node in replaced:
        node.target = TENSORCORE_MATMUL
    return len(replaced)


def tensorcore_matmul(left: Tensor, right: Tensor) -> Tensor:
    """The matmul [b, m, k] x [b, k, n] as a fleet's program computes it."""
    return TENSORCORE_MATMUL(left, right) if uses_kernel(left, right) else torch.bmm(left, right)


def uses_kernel(left: Tensor, right: Tensor) -> bool:
    """Whether the kernel computes this matmul: float32, on a supported GPU, with operands that fill its tiles."""
    is_float32 = left.dtype == right.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    return is_float32 and _fills_tiles(left, right) and has_kernel(left.device)


def _fills_tiles(left: Tensor, right: Tensor) -> bool:
    """Whether no size is small, both operands are dense, and at most half of the tiles' work is padding."""
    (batch, rows, terms), columns = left.shape, right.shape[-1]
    is_dense = 1 in left.stride()[1:] and 1 in right.stride()[1:]
    work = math.prod(
        math.ceil(size / tile) * tile for size, tile in ((rows, _TILE), (terms, _TILE_DEPTH), (columns, _TILE))
    )
    return batch > 0 and min(rows, terms, columns) >= _MIN_SIZE and is_dense and 2 * rows * terms * columns >= work


@cache
def has_kernel(device: torch.device) -> bool:
    """Whether Triton works on this device and supports the precisions used."""
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip:
        return False
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        return False
    try:
        from triton.backends.nvidia.compiler import CUDAOptions
        from triton.runtime import driver

        driver.active.get_current_target()
    except Exception:  # Triton may be missing, or what it needs: a C compiler, Python's headers, a driver.
        return False
    known = getattr(CUDAOptions, "allowed_dot_input_precisions", ())
    return {SMALL_MATMUL.precision, MIXED.precision} <= {*known}


def kernel_settings(left: Tensor, right: Tensor) -> KernelSettings:
    """The settings that were fastest on an H200 for the layouts and sizes of a fleet's matmuls."""
    tiles = left.shape[0] * math.ceil(left.shape[1] / _TILE) * math.ceil(right.shape[2] / _TILE)
    if tiles < MULTIPROCESSORS:
        return SMALL_MATMUL
    if not left.stride(2) == right.stride(1) == 1:
        return MIXED
    is_tall = tiles >= 2 * MULTIPROCESSORS and math.ceil(left.shape[1] / _TILE) % 2 == 0
    return TALL if is_tall else SQUARE


def _shape(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], left.shape[1], right.shape[2])


def _on_gpu(left: Tensor, right: Tensor) -> Tensor:
    from walkback.training.gpu.tensorcore_kernel import matmul_tile

    (batch, rows, terms), columns = left.shape, right.shape[-1]
    block_m, block_n, block_k, warps, stages, precision = kernel_settings(left, right)
    is_even = rows % block_m == columns % block_n == terms % block_k == 0
    result = left.new_empty(batch, rows, columns)
    tiles = batch * math.ceil(rows / block_m) * math.ceil(columns / block_n)
    sizes = (rows, terms, columns, *left.stride(), *right.stride())
    with torch.cuda.device(left.device):
        matmul_tile[(tiles,)](
            left,
            right,
            result,
            *sizes,
            block_m,
            block_n,
            block_k,
            precision,
            is_even,
            num_warps=warps,
            num_stages=stages,
        )
    return result


# `flexible_layout`: torch.compile may pass any strides, as to its own matmuls. If it had to keep the traced strides, it
# would copy transposed views.
torch.library.define(
    _NAME,
    "(Tensor left, Tensor right) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)
torch.library.register_fake(_NAME, _shape)
torch.library.impl(_NAME, "cpu", torch.bmm)
torch.library.impl(_NAME, "cuda", _on_gpu)
TENSORCORE_MATMUL = torch.ops.walkback.tensorcore_matmul.default
