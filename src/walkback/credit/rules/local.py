"""Greedy local learning: each hidden state below the top has its own linear classifier, whose loss gives its credit.

Citation: Belilovsky, Eickenberg and Oyallon, 2019; Nøkland and Eidnes, 2019
Feedback: none from above: a_l is the gradient of the auxiliary cross-entropy at h_l, a_L that of the true loss
Tokens: the auxiliary classifier gets the mean over all tokens, cls included
Maps: the auxiliary classifier gets the mean over all positions
State: one auxiliary Linear(d, classes) for each of h_0..h_{L-1}, learned
Exact: top layer
Cost: bp's forward pass and weight gradients without the input pullback; the auxiliary classifiers and their gradients

The stem and all blocks are trained simultaneously, each by the classifier at its output state and by nothing above. The
output of the last block is h_L, so the true head trains it. Only site=output is defined: an auxiliary loss at a block's
input does not depend on the block. The classifiers are trained on constant states, by AdamW without decay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.settings import require_above
from walkback.credit.rule import EXACT, LEARNED, UNRELATED, CreditRule, Credits, Label, Logs
from walkback.credit.trace import Trace, softmax_error
from walkback.nets import layers
from walkback.nets.network import Leaves, Network, features_of, kind_of, named


@dataclass(frozen=True)
class LocalHeads(CreditRule):
    sites = ("output",)

    aux_lr: float = 1e-3
    """Learning rate of the auxiliary classifiers."""

    def __post_init__(self) -> None:
        require_above(self.aux_lr, 0, "aux_lr of local")

    @property
    def own_lr(self) -> float:
        return self.aux_lr

    def init(self, net: Network, generator: Generator) -> Leaves:
        heads: Leaves = {}
        for layer in range(net.depth):
            width = features_of(net.state_shapes[layer])
            heads |= named(layers.linear(width, net.classes, generator), f"{LEARNED}{layer}")
        return heads

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(UNRELATED,) * depth, EXACT)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        credits = []
        for layer in range(net.depth):
            error = softmax_error(_logits(state, trace, layer), trace.target)
            credits.append(_unpool(net.state_shapes[layer], error @ state[f"{LEARNED}{layer}.weight"]))
        return (*credits, trace.top), {}

    def own_loss(
        self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves
    ) -> tuple[Tensor, Logs] | None:
        losses = [F.cross_entropy(_logits(state, trace, layer), trace.y) for layer in range(net.depth)]
        total = torch.stack(losses).sum()
        return total, {"aux_loss": total / net.depth}


def _logits(state: Leaves, trace: Trace, layer: int) -> Tensor:
    """The logits [n, classes] of the auxiliary classifier of h_layer."""
    pooled = _pool(trace.states[layer])
    return F.linear(pooled, state[f"{LEARNED}{layer}.weight"], state[f"{LEARNED}{layer}.bias"])


def _pool(h: Tensor) -> Tensor:
    """[n, features]: the mean over tokens or positions; vectors are returned unchanged."""
    kind = kind_of(tuple(h.shape[1:]))
    if kind == "maps":
        return h.mean((-2, -1))
    return h.mean(-2) if kind == "tokens" else h


def _unpool(shape: tuple[int, ...], gradient: Tensor) -> Tensor:
    """The backward pass of `_pool` to a state of this shape: each token or position gets an equal share."""
    if kind_of(shape) == "maps":
        height, width = shape[1:]
        return (gradient / (height * width))[:, :, None, None].expand(-1, -1, height, width)
    if kind_of(shape) == "tokens":
        tokens = shape[0]
        return (gradient / tokens)[:, None].expand(-1, tokens, -1)
    return gradient


RULE = LocalHeads
