"""Kolen-Pollack: feedback matrices that get the same increments and decay as the forward weights.

Citation: Kolen and Pollack, 1994; Akrout, Wilson, Humphreys, Lillicrap and Tweed, 2019
Feedback: per-Linear, B from N(0, 1/fan_out) times b_scale, then following W transposed; the skips transport exactly
State: B of every Linear inside a block
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
from walkback.credit.perlinear_rule import PerLinearRule, keys
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class KolenPollack(RandomFeedback, PerLinearRule):
    def init(self, net: Network, generator: Generator) -> Leaves:
        return {
            f"B.{key}": self.matrix((fan_in, fan_out), fan_out**-0.5, generator) for key, fan_in, fan_out in keys(net)
        }

    def feedback(self, key: str, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return state[f"B.{key}"]

    def after_update(self, state: Leaves, before: Leaves, after: Leaves, decay: Tensor) -> Leaves:
        def followed(name: str, feedback: Tensor) -> Tensor:
            weight = name.replace("B.", "blocks.", 1) + ".weight"
            return follow(feedback, before[weight].mT, after[weight].mT, decay)

        return {name: followed(name, feedback) for name, feedback in state.items()}


def follow(feedback: Tensor, before: Tensor, after: Tensor, decay: Tensor) -> Tensor:
    """(1 - decay) B + increment, the increment being after - (1 - decay) before.

    Written as after + (1 - decay) (B - before), so that a B equal to the weight stays equal to the last bit. A weight
    that did not change is frozen: it got no decay either, and its feedback stays unchanged.
    """
    moved = (after != before).any()
    return torch.where(moved, after + (1 - decay) * (feedback - before), feedback)


RULE = KolenPollack
