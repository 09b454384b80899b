"""Uniform sign-concordant feedback: the backward pass uses only the signs of the weights.

Citation: Liao, Leibo and Poggio, 2016
Feedback: per-layer, B = sign(W) transposed / sqrt(fan_out); the identity skips transport exactly
State: none
Exact: top layer
Cost: bp's forward pass, input pullback and weight gradients; plus the sign of each block weight, every step

Liao, Leibo and Poggio use sign(W) unscaled, together with batch normalisation. The factor 1/sqrt(fan_out) is ours: a
Linear then preserves the length of a random credit on average, and the three sign rules have feedback of equal size.
A weight of exactly 0 has sign 0 and transports no credit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from walkback.credit.perlinear_rule import PerLinearRule
from walkback.credit.rule import SIGN_FEEDBACK
from walkback.nets.network import BlockLayer, Leaves, transpose


@dataclass(frozen=True)
class UniformSignFeedback(PerLinearRule):
    label = SIGN_FEEDBACK

    def feedback(self, layer: BlockLayer, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return transpose(weight.sign()) / math.sqrt(layer.fan_out)


RULE = UniformSignFeedback
