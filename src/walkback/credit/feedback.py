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
from walkback.nets.network import Network, StateKind, features_of, kind_of, positions_of

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


def send_down(matrix: Tensor, credit: Tensor, above: tuple[int, ...], below: tuple[int, ...]) -> Tensor:
    """A credit [n, *above] sent to a state of shape `below` by `matrix` [features below, features above].

    The features are mixed at each token or position. Where the positions differ, this is the transpose of a map that
    averages the positions below: each position above gives an equal share to those it covers.
    """
    mixed = mix(matrix, credit, kind_of(above))
    if positions_of(above) == positions_of(below):
        return mixed
    # Positions last: [n, features, *positions].
    spread = {"vector": lambda c: c[..., None], "tokens": lambda c: c.mT, "maps": lambda c: c}[kind_of(above)](mixed)
    places, wanted = positions_of(above) or (1,), positions_of(below) or (1,)
    if len(places) != len(wanted):
        spread, places = spread.flatten(2), (math.prod(places),)
        wanted = (math.prod(wanted),)
    for axis, (size, count) in enumerate(zip(places, wanted, strict=True), start=2):
        averaging = _averaging(size, count, credit.dtype, credit.device)
        spread = (spread.movedim(axis, -1) @ averaging).movedim(-1, axis)
    flat = spread.reshape(len(credit), features_of(below), *positions_of(below))
    sent: Tensor = flat.mT if kind_of(below) == "tokens" else flat
    return sent


def _averaging(above: int, below: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix [above, below] of adaptive average pooling from `below` to `above` positions."""
    starts = torch.arange(above) * below // above
    ends = -((torch.arange(above) + 1) * -below // above)
    places = torch.arange(below)
    inside = ((places >= starts[:, None]) & (places < ends[:, None])).to(dtype)
    return (inside / inside.sum(1, keepdim=True)).to(device)


def direct_shape(classes: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Shape of a matrix that projects from the classes to one token's vector, or to the whole flattened map."""
    return classes, math.prod(shape) if kind_of(shape) == "maps" else features_of(shape)


def project(shape: tuple[int, ...], error: Tensor, matrix: Tensor, tokens: CreditTokens) -> Tensor:
    """B^T e for each sample of `error` [n, classes], as a state of this shape; `matrix` is B, of `direct_shape`.

    Where each token has an error of its own [n, tokens, classes], it is projected to that token.
    """
    projected = error @ matrix
    if error.ndim > 2:
        return projected
    if kind_of(shape) == "tokens":
        count = shape[0]
        if tokens == "cls":
            return F.pad(projected[:, None], (0, 0, 0, count - 1))
        return (projected / count)[:, None].expand(-1, count, -1)
    return projected.reshape(-1, *shape)


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
