"""Initial parameters of single layers."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from walkback.nets.network import Leaves


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
