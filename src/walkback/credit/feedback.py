"""Random feedback matrices: drawing them, applying them to each kind of state, and scaling the fed-back error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.settings import require_above
from walkback.credit.rule import CreditRule, dynamic
from walkback.nets.network import Network, StateKind

CreditTokens = Literal["broadcast", "cls"]
"""Where a projected error is placed on token states: at every token, divided by their number, or at cls only."""


def gaussian(shape: tuple[int, ...], std: float, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * std


@dataclass(frozen=True)
class RandomFeedback(CreditRule):
    """Base of the rules whose random feedback is drawn once and stored in the rule's state."""

    b_scale: float = dynamic(1.0)
    """Factor of all feedback matrices, applied when they are drawn; the stored state includes it."""

    def __post_init__(self) -> None:
        if not isinstance(self.b_scale, Tensor):  # Inside a step it is a tensor, and was checked before.
            require_above(self.b_scale, 0, "b_scale")

    def matrix(self, shape: tuple[int, ...], std: float, generator: Generator) -> Tensor:
        """Draw a feedback matrix. `b_scale` multiplies it afterwards, so the random numbers do not depend on it."""
        return gaussian(shape, std, generator) * self.b_scale


def mix(matrix: Tensor, credit: Tensor, kind: StateKind) -> Tensor:
    """Apply `matrix` [features, features] to a credit [n, *state_shape] at every token or position."""
    if kind == "maps":
        # Contiguous in NCHW order: the backward pass of a convolution is several times slower on other layouts.
        return F.linear(credit.movedim(1, -1), matrix).movedim(-1, 1).contiguous()
    return F.linear(credit, matrix)


def direct_shape(net: Network) -> tuple[int, int]:
    """Shape of a matrix that projects from the classes to one token's vector, or to the whole flattened map."""
    return net.classes, math.prod(net.state_shape) if net.kind == "maps" else net.features


def project(net: Network, error: Tensor, matrix: Tensor, tokens: CreditTokens) -> Tensor:
    """B^T e for each sample of `error` [n, classes], shaped like a hidden state; `matrix` is B, of `direct_shape`.

    Where each token has an error of its own [n, tokens, classes], it is projected to that token.
    """
    projected = error @ matrix
    if net.per_token:
        return projected
    if net.kind == "tokens":
        count = net.state_shape[0]
        if tokens == "cls":
            return F.pad(projected[:, None], (0, 0, 0, count - 1))
        return (projected / count)[:, None].expand(-1, count, -1)
    return projected.reshape(-1, *net.state_shape)


def refuses_tokens(net: Network, tokens: str, usual: str) -> str | None:
    """Why a rule with this `credit_tokens` is not defined on this network; None if it is.

    Networks without tokens accept the default, `usual`, only.
    """
    if tokens != usual and net.per_token:
        return f"credit_tokens={tokens} chooses among tokens, and here each has an error of its own; leave it out"
    if tokens != usual and net.kind != "tokens":
        return f"credit_tokens={tokens} chooses among tokens, and the hidden states have none; leave it out"
    return None


def without_credit(net: Network, tokens: CreditTokens) -> tuple[str, ...]:
    """Prefixes of the leaves that a projected error does not reach: with `cls`, those behind the other tokens."""
    return net.patch_leaves if tokens == "cls" else ()


def unit(error: Tensor) -> Tensor:
    """Each sample's error scaled to length 1; a zero error stays zero."""
    length = _length(error).reshape(-1, *(1,) * (error.ndim - 1))
    return torch.where(length > 0, error / torch.where(length > 0, length, 1.0), 0.0)


def _length(error: Tensor) -> Tensor:
    """The length [n] of each sample's error, over all its tokens."""
    length: Tensor = torch.linalg.vector_norm(error.flatten(1), dim=-1)
    return length


def scaled(error: Tensor, is_unit: Tensor) -> Tensor:
    """The error unchanged (`is_unit` 0) or scaled to unit length (1)."""
    return torch.where(is_unit > 0, unit(error), error)


def scale_factor(error: Tensor, is_unit: Tensor) -> Tensor:
    """The factor [n] by which `scaled` multiplies each sample's error; 0 for a zero error scaled to unit length."""
    length = _length(error)
    inverse = torch.where(length > 0, 1 / torch.where(length > 0, length, 1.0), 0.0)
    return torch.where(is_unit > 0, inverse, 1.0)
