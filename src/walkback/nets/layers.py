"""Initial parameters of single layers, and the branch of a transformer block."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.nets.network import Leaves, Linear, named


def uniform(shape: tuple[int, ...], bound: float, generator: Generator) -> Tensor:
    """Uniform values in ±bound."""
    return torch.rand(shape, generator=generator).mul_(2 * bound).sub_(bound)


def linear(fan_in: int, fan_out: int, generator: Generator) -> Leaves:
    """A Linear at PyTorch's default: weight and bias uniform in ±1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return {
        "weight": uniform((fan_out, fan_in), bound, generator),
        "bias": uniform((fan_out,), bound, generator),
    }


def small_linear(fan_in: int, fan_out: int, generator: Generator, std: float) -> Leaves:
    """A Linear with weight N(0, std²) and bias zero, for residual branches that start close to zero."""
    return {"weight": torch.randn((fan_out, fan_in), generator=generator).mul_(std), "bias": torch.zeros(fan_out)}


def conv(channels_in: int, channels_out: int, size: int, generator: Generator, bias: bool = True) -> Leaves:
    """A square convolution at PyTorch's default: weight and bias uniform in ±1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(channels_in * size**2)
    leaves = {"weight": uniform((channels_out, channels_in, size, size), bound, generator)}
    return leaves | {"bias": uniform((channels_out,), bound, generator)} if bias else leaves


def batch_statistics(width: int) -> Leaves:
    """Initial running statistics of a BatchNorm: mean 0 and variance 1."""
    return {"mean": torch.zeros(width), "var": torch.ones(width)}


def norm(width: int) -> Leaves:
    """Scale 1 and shift 0 of a LayerNorm or BatchNorm."""
    return {"weight": torch.ones(width), "bias": torch.zeros(width)}


def transformer_linears(d: int, mlp_ratio: int) -> tuple[tuple[str, int, int], ...]:
    """The Linears of `transformer_branch` with their sizes in and out."""
    wide = mlp_ratio * d
    return (("qkv", d, 3 * d), ("proj", d, d), ("fc1", d, wide), ("fc2", wide, d))


def transformer_leaves(
    depth: int, d: int, linears: Sequence[tuple[str, int, int]], classes: int, generator: Generator
) -> Leaves:
    """Initial parameters of the blocks, and of a head of LayerNorm and Linear."""
    leaves: Leaves = {}
    for block in range(depth):
        leaves |= named(norm(d), f"blocks.{block}.norm1")
        leaves |= named(norm(d), f"blocks.{block}.norm2")
        for name, fan_in, fan_out in linears:
            leaves |= named(linear(fan_in, fan_out, generator), f"blocks.{block}.{name}")
    leaves |= named(norm(d), "head.norm")
    return leaves | named(linear(d, classes, generator), "head.out")


def transformer_branch(leaves: Leaves, h: Tensor, linear: Linear, heads: int, *, causal: bool = False) -> Tensor:
    """The branch of a pre-LayerNorm transformer block: attention, then an MLP on the state with attention added."""

    def apply(name: str, z: Tensor) -> Tensor:
        return linear(name, z, leaves[f"{name}.weight"], leaves[f"{name}.bias"])

    def normed(name: str, z: Tensor) -> Tensor:
        return F.layer_norm(z, z.shape[-1:], leaves[f"{name}.weight"], leaves[f"{name}.bias"])

    u = apply("proj", attention(apply("qkv", normed("norm1", h)), heads, causal))
    return u + apply("fc2", F.gelu(apply("fc1", normed("norm2", h + u))))


def attention(qkv: Tensor, heads: int, causal: bool) -> Tensor:
    """Softmax attention of [n, tokens, 3 d]; torch's fused version cannot be vmapped on every device."""
    size = qkv.shape[-1] // (3 * heads)
    q, k, v = qkv.reshape(*qkv.shape[:-1], 3, heads, size).permute(2, 0, 3, 1, 4).unbind(0)
    scores = (q * size**-0.5) @ k.mT
    if causal:
        tokens = torch.arange(qkv.shape[-2], device=qkv.device)
        scores = torch.where(tokens[:, None] >= tokens, scores, -torch.inf)
    mixed: Tensor = scores.softmax(-1) @ v
    return mixed.transpose(1, 2).flatten(2)
