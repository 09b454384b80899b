"""Sign-concordant feedback of fixed random magnitude: the weights' current signs, magnitudes drawn once.

Citation: Liao, Leibo and Poggio, 2016
Feedback: per-Linear, |B| * sign(W) transposed, B from N(0, 1/fan_out) times b_scale; the skips transport exactly
State: |B| of every Linear inside a block
Exact: top layer
Cost: bp's forward pass, input pullback and weight gradients; plus sign and product of each block weight

The signs are those of the current weights, so the feedback matrix changes whenever a weight crosses zero: angles
between the stored magnitudes and the weights are not meaningful for this rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from walkback.credit.feedback import RandomFeedback
from walkback.credit.perlinear_rule import PerLinearRule, keys
from walkback.credit.rule import SIGN_FEEDBACK
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class FixedSignFeedback(RandomFeedback, PerLinearRule):
    label = SIGN_FEEDBACK
    fresh_is_null = False  # Fresh magnitudes still use the signs of the weights.

    def init(self, net: Network, generator: Generator) -> Leaves:
        return {
            f"magnitude.{key}": self.matrix((fan_in, fan_out), fan_out**-0.5, generator).abs()
            for key, fan_in, fan_out in keys(net)
        }

    def feedback(self, key: str, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return state[f"magnitude.{key}"] * weight.sign().mT


RULE = FixedSignFeedback
