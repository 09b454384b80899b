"""Shared base of the rules with per-layer feedback: the exact top credit, sent back with a feedback matrix per layer.

The skips transport it exactly; the norms, activations and attention weights of a block use their own derivatives; each
Linear of a block uses the rule's feedback matrix in place of its transposed weight, and each convolution a feedback
kernel in place of its own in the transposed convolution.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from walkback.credit.perlinear import feedback_convolution, feedback_linear
from walkback.credit.rule import EXACT, UNRELATED, CreditRule, Credits, Label, Logs, transport
from walkback.credit.trace import Trace
from walkback.nets.network import BlockLayer, Convolution, Leaves, Linear, Network


@dataclass(frozen=True)
class PerLinearRule(CreditRule):
    """Credit enters a block at its output, so blocks are trained by the credit of their output state (site=output)."""

    sites = ("output",)
    through_blocks = True
    per_token = True
    label: ClassVar[Label] = UNRELATED
    """The label of all layers but the top one."""

    @abstractmethod
    def feedback(self, layer: BlockLayer, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        """What replaces the layer's transposed `weight` in the backward pass, of `layer.feedback_shape`: [fan_in,
        fan_out] for a Linear, and the shape of its kernel for a convolution."""

    def refuses(self, net: Network) -> str | None:
        return net.layers_problem

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(self.label,) * depth, EXACT)

    def linears(self, net: Network, state: Leaves, noise: Leaves) -> list[Linear]:
        layers = {layer.key: layer for layer in net.layers}

        def linear_of(block: int) -> Linear:
            def linear(
                name: str, x: Tensor, weight: Tensor, bias: Tensor | None = None, how: Convolution | None = None
            ) -> Tensor:
                layer = layers[f"{block}.{name}"]
                matrix = self.feedback(layer, weight, state, noise)
                if how is not None:
                    return feedback_convolution(x, weight, _bias(bias, weight, 0), matrix, how)
                if layer.form == "conv1d":
                    return feedback_linear(x, weight.mT, _bias(bias, weight, 1), matrix.mT)
                return feedback_linear(x, weight, _bias(bias, weight, 0), matrix)

            return linear

        return [linear_of(block) for block in range(net.depth)]

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        return transport(trace), {}


def layer_feedback(net: Network, prefix: str, draw: Callable[[tuple[int, ...], float], Tensor]) -> Leaves:
    """A tensor `prefix.<key>` for every layer inside a block, bottom up, from `draw(shape, std)`.

    The standard deviation 1/sqrt(fan_out) makes a random credit keep its size on average.
    """
    return {f"{prefix}.{layer.key}": draw(layer.feedback_shape, layer.fan_out**-0.5) for layer in net.layers}


def _bias(bias: Tensor | None, weight: Tensor, axis: int) -> Tensor:
    """The bias, or zeros where the layer has none."""
    return weight.new_zeros(weight.shape[axis]) if bias is None else bias
