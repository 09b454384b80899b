"""What the two bridges share: states at unit size per sample, depth as a time, and one small MLP for all layers.

Hidden states may grow to 1e8 while gradients shrink to 1e-9. A bridge therefore sees h / rms(h): its fit is the same
whatever the states are multiplied by, and what it learns has no slope along h itself. Nor has the loss at a terminal
LayerNorm; on a network without one, that component of the gradient is out of its reach.
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
"""The label of a top layer whose credit is learned from what is known exactly there."""


def root_mean_square(h: Tensor) -> Tensor:
    """Each state's size [..., 1], made to be divided by: a zero state has size 1.

    The largest entry is taken out first, so that no square overflows or vanishes. It cancels: it may be held constant.
    """
    largest = or_one(h.detach().abs().amax(-1, keepdim=True))
    return largest * or_one((h / largest).square().mean(-1, keepdim=True)).sqrt()


def normalised(h: Tensor) -> Tensor:
    """Each state at root mean square 1; a zero state stays zero."""
    return h / root_mean_square(h)


def or_one(size: Tensor) -> Tensor:
    """Sizes as they are, however small, and 1 for what is exactly zero."""
    return torch.where(size > 0, size, 1.0)


def times(net: Network, like: Tensor) -> Tensor:
    """t_l = l / L of h_0..h_L, shaped to stand beside stacked states [L + 1, n, d]."""
    return torch.linspace(0, 1, net.depth + 1, dtype=like.dtype, device=like.device)[:, None, None]


def init(inputs: int, outputs: int, width: int, generator: Generator) -> Leaves:
    """Fresh learned leaves of an MLP with two hidden layers."""
    sizes = {"first": (inputs, width), "second": (width, width), "out": (width, outputs)}
    leaves: Leaves = {}
    for name, (fan_in, fan_out) in sizes.items():
        leaves |= named(layers.linear(fan_in, fan_out, generator), f"{LEARNED}{name}")
    return leaves


def mlp(state: Leaves, h: Tensor, *beside: Tensor) -> Tensor:
    """The MLP on h [..., n, d] and further features beside it, repeated for the samples or layers they lack."""
    shape = h.shape[:-1]
    z = torch.cat([h, *(feature.expand(*shape, feature.shape[-1]) for feature in beside)], -1)
    for name in ("first", "second"):
        z = F.gelu(_linear(state, name, z))
    return _linear(state, "out", z)


def _linear(state: Leaves, name: str, x: Tensor) -> Tensor:
    leaves = part(state, f"{LEARNED}{name}")
    return F.linear(x, leaves["weight"], leaves["bias"])


def check_bridge(width: int, lr: float, method: str) -> None:
    """Refuse sizes and rates that make no bridge."""
    require_at_least(width, 1, f"width of {method}")
    require_above(lr, 0, f"bridge_lr of {method}")


def refuses(net: Network) -> str | None:
    return None if net.kind == "vector" else "its bridge reads vectors, and the hidden states are not vectors"
