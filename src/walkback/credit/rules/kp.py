"""Kolen-Pollack: feedback matrices that get the same increments and decay as the forward weights.

Citation: Kolen and Pollack, 1994; Akrout, Wilson, Humphreys, Lillicrap and Tweed, 2019
Feedback: per-layer, B from N(0, 1/fan_out) times b_scale, then following W transposed; the skips transport exactly
State: B of every Linear and convolution inside a block
Exact: top layer
Cost: bp's forward pass, input pullback and weight gradients; plus a copy of the weights and one update of B

The gap B - W^T shrinks by exactly the factor 1 - lr * weight_decay in each step, whatever the optimiser does with the
gradients. If lr * weight_decay * steps is well below 1 the gap barely closes, and B agrees with W^T only through the
increments that both received.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from walkback.credit.feedback import RandomFeedback
from walkback.credit.perlinear_rule import PerLinearRule, layer_feedback
from walkback.nets.network import BlockLayer, Leaves, Network, transpose


@dataclass(frozen=True)
class KolenPollack(RandomFeedback, PerLinearRule):
    def init(self, net: Network, generator: Generator) -> Leaves:
        return layer_feedback(net, "B", lambda shape, std: self.matrix(shape, std, generator))

    def feedback(self, layer: BlockLayer, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return state[f"B.{layer.key}"]

    def after_update(self, state: Leaves, before: Leaves, after: Leaves, decay: Tensor) -> Leaves:
        def followed(name: str, feedback: Tensor) -> Tensor:
            was, is_now = (transpose(_weight(leaves, name)) for leaves in (before, after))
            return follow(feedback, was, is_now, decay)

        return {name: followed(name, feedback) for name, feedback in state.items()}


def _weight(leaves: Leaves, name: str) -> Tensor:
    """The weight that the feedback `B.<block>.<name>` follows."""
    leaf = name.replace("B.", "blocks.", 1)
    return leaves[f"{leaf}.weight"] if f"{leaf}.weight" in leaves else leaves[leaf]


def follow(feedback: Tensor, before: Tensor, after: Tensor, decay: Tensor) -> Tensor:
    """(1 - decay) B + increment, the increment being after - (1 - decay) before.

    Written as after + (1 - decay) (B - before), so that a B equal to the weight stays equal to the last bit. A weight
    that did not change is frozen: it got no decay either, and its feedback stays unchanged.
    """
    moved = (after != before).any()
    return torch.where(moved, after + (1 - decay) * (feedback - before), feedback)


RULE = KolenPollack
