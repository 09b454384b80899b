"""Feedback alignment layer by layer: every Linear and convolution sends credit back through a fixed random B.

Citation: Lillicrap, Cownden, Tweed and Akerman, 2016; on convolutions: Moskovitz, Litwin-Kumar and Abbott, 2018
Feedback: per-layer, B from N(0, 1/fan_out) times b_scale in place of W transposed; the skips transport exactly
Maps: B has the shape of the convolution's kernel, and takes its place in the transposed convolution
State: B of every Linear and convolution inside a block
Exact: top layer
Cost: bp's forward pass, input pullback and weight gradients

This is the feedback alignment of the field and of its libraries. The rule `fa` is another algorithm on the same
networks: one matrix at each block boundary, past the skip. Below the top block the two have nothing in common but the
name.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from walkback.credit.feedback import RandomFeedback
from walkback.credit.perlinear_rule import PerLinearRule, layer_feedback
from walkback.nets.network import BlockLayer, Leaves, Network


@dataclass(frozen=True)
class LayerFeedbackAlignment(RandomFeedback, PerLinearRule):
    def init(self, net: Network, generator: Generator) -> Leaves:
        return layer_feedback(net, "B", lambda shape, std: self.matrix(shape, std, generator))

    def feedback(self, layer: BlockLayer, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return state[f"B.{layer.key}"]


RULE = LayerFeedbackAlignment
