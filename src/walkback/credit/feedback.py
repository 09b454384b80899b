"""Random feedback: drawing it, applying it, and scaling the error that is fed back."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def gaussian(shape: tuple[int, ...], std: float, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * std


def unit(error: Tensor) -> Tensor:
    """Each sample's error at length 1; a zero error stays zero."""
    length = torch.linalg.vector_norm(error, dim=-1, keepdim=True)
    return torch.where(length > 0, error / torch.where(length > 0, length, 1.0), 0.0)


def scaled(error: Tensor, is_unit: Tensor) -> Tensor:
    """The error as it is (`is_unit` 0) or at unit length (1)."""
    return torch.where(is_unit > 0, unit(error), error)
