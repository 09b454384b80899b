"""Sign-concordant feedback of batchwise random magnitude: the weights' current signs, magnitudes redrawn every step.

Citation: Liao, Leibo and Poggio, 2016
Feedback: per-layer, |N| * sign(W) transposed, N from N(0, 1/fan_out) drawn each step; the skips transport exactly
State: none; the magnitudes are noise, one draw shared by all samples of a batch
Exact: top layer
Cost: bp's forward pass, input pullback and weight gradients; plus one random number for each block weight
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from walkback.credit.feedback import gaussian
from walkback.credit.perlinear_rule import PerLinearRule, layer_feedback
from walkback.credit.rule import SIGN_FEEDBACK
from walkback.nets.network import BlockLayer, Leaves, Network, transpose


@dataclass(frozen=True)
class BatchwiseSignFeedback(PerLinearRule):
    label = SIGN_FEEDBACK

    def draw(self, net: Network, batch: int, generator: Generator) -> Leaves:
        return layer_feedback(net, "magnitude", lambda shape, std: gaussian(shape, std, generator).abs())

    def feedback(self, layer: BlockLayer, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return noise[f"magnitude.{layer.key}"] * transpose(weight.sign())


RULE = BatchwiseSignFeedback
