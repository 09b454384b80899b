"""Sign-concordant feedback of fixed random magnitude: the weights' present signs, magnitudes drawn once.

Citation: Liao, Leibo and Poggio, 2016
Feedback: per-Linear, |B| * sign(W) transposed, B from N(0, 1/fan_out) times b_scale; the skips transport exactly
State: |B| of every Linear inside a block
Exact: top layer
Cost: bp's forward pass, input pullback and weight gradients; beside them sign and product of each block weight

The sign is that of the weight as it is now, so the matrix really used changes whenever a weight crosses zero: angles
taken with the stored magnitudes alone say nothing of this rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from walkback.credit.feedback import RandomFeedback
from walkback.credit.perlinear_rule import PerLinearRule, keys
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class FixedSignFeedback(RandomFeedback, PerLinearRule):
    fresh_is_null = False  # Other magnitudes still come with the signs of the weights.

    def init(self, net: Network, generator: Generator) -> Leaves:
        return {
            f"magnitude.{key}": self.matrix((fan_in, fan_out), fan_out**-0.5, generator).abs()
            for key, fan_in, fan_out in keys(net)
        }

    def feedback(self, key: str, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return state[f"magnitude.{key}"] * weight.sign().mT


RULE = FixedSignFeedback
