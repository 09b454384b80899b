"""Sign-concordant feedback of fixed random magnitude: the weights' current signs, magnitudes drawn once.

Citation: Liao, Leibo and Poggio, 2016
Feedback: per-layer, |B| * sign(W) transposed, B from N(0, 1/fan_out) times b_scale; the skips transport exactly
State: |B| of every Linear and convolution inside a block
Exact: top layer
Cost: bp's forward pass, input pullback and weight gradients; plus sign and product of each block weight

The signs are those of the current weights, so the feedback matrix changes whenever a weight crosses zero: angles
between the stored magnitudes and the weights are not meaningful for this rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from walkback.credit.feedback import RandomFeedback
from walkback.credit.perlinear_rule import PerLinearRule, layer_feedback
from walkback.credit.rule import SIGN_FEEDBACK
from walkback.nets.network import BlockLayer, Leaves, Network, transpose


@dataclass(frozen=True)
class FixedSignFeedback(RandomFeedback, PerLinearRule):
    label = SIGN_FEEDBACK
    fresh_is_null = False  # Fresh magnitudes still use the signs of the weights.

    def init(self, net: Network, generator: Generator) -> Leaves:
        return layer_feedback(net, "magnitude", lambda shape, std: self.matrix(shape, std, generator).abs())

    def feedback(self, layer: BlockLayer, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return state[f"magnitude.{layer.key}"] * transpose(weight.sign())


RULE = FixedSignFeedback
