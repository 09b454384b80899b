"""Shared code of the two bridge rules: normalised states, depth as a time input, and one small MLP for all layers.

Hidden states may grow to 1e8 while gradients shrink to 1e-9. A bridge therefore gets h / rms(h) as input: its fit does
not depend on the scale of the states, and its output has zero derivative along h. The loss below a terminal LayerNorm
has zero derivative along h, too; on a network without one, a bridge cannot represent that component of the gradient.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.settings import require_above, require_at_least
from walkback.credit.rule import LEARNED, Label
from walkback.nets import layers
from walkback.nets.network import Leaves, Network, named, part

FITTED: Label = "fitted"
"""The label of a top layer whose credit is fitted to targets that are known exactly there."""


def root_mean_square(h: Tensor) -> Tensor:
    """Root mean square of each state [..., 1]; 1 for a zero state, so that it can be divided by.

    The state is divided by its largest entry before squaring, so that no square overflows or underflows. That factor
    cancels, so it is treated as a constant in derivatives.
    """
    largest = one_where_zero(h.detach().abs().amax(-1, keepdim=True))
    return largest * one_where_zero((h / largest).square().mean(-1, keepdim=True)).sqrt()


def normalised(h: Tensor) -> Tensor:
    """Each state divided by its root mean square; a zero state stays zero."""
    return h / root_mean_square(h)


def one_where_zero(size: Tensor) -> Tensor:
    """The sizes with exact zeros replaced by 1."""
    return torch.where(size > 0, size, 1.0)


def layer_times(net: Network, like: Tensor) -> Tensor:
    """t_l = l / L of h_0..h_L, shaped [L + 1, 1, 1] to broadcast with stacked states [L + 1, n, d]."""
    return torch.linspace(0, 1, net.depth + 1, dtype=like.dtype, device=like.device)[:, None, None]


def init_mlp(inputs: int, outputs: int, width: int, generator: Generator) -> Leaves:
    """Initial learned leaves of an MLP with two hidden layers."""
    sizes = {"first": (inputs, width), "second": (width, width), "out": (width, outputs)}
    leaves: Leaves = {}
    for name, (fan_in, fan_out) in sizes.items():
        leaves |= named(layers.linear(fan_in, fan_out, generator), f"{LEARNED}{name}")
    return leaves


def mlp(state: Leaves, h: Tensor, *extra: Tensor) -> Tensor:
    """Apply the MLP to h [..., n, d] concatenated with `extra` features, broadcast over samples and layers."""
    shape = h.shape[:-1]
    z = torch.cat([h, *(feature.expand(*shape, feature.shape[-1]) for feature in extra)], -1)
    for name in ("first", "second"):
        z = F.gelu(_linear(state, name, z))
    return _linear(state, "out", z)


def _linear(state: Leaves, name: str, x: Tensor) -> Tensor:
    leaves = part(state, f"{LEARNED}{name}")
    return F.linear(x, leaves["weight"], leaves["bias"])


def check_bridge(width: int, lr: float, method: str) -> None:
    """Raise InputError unless width and learning rate are positive."""
    require_at_least(width, 1, f"width of {method}")
    require_above(lr, 0, f"bridge_lr of {method}")


def bridge_refusal(net: Network) -> str | None:
    """Why a bridge rule is not defined on this network; None if it is."""
    if not net.has_one_shape:
        return "its bridge reads states of one shape, and the hidden states change their shape from block to block"
    return None if net.kind == "vector" else "its bridge reads vectors, and the hidden states are not vectors"
