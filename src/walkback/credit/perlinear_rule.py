"""Shared base of the rules with per-Linear feedback: the exact top credit, sent back with a feedback matrix per Linear.

The skips transport it exactly; the norms, activations and attention weights of a block use their own derivatives; each
Linear of a block uses the rule's feedback matrix in place of its transposed weight.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from walkback.credit.perlinear import feedback_linear, refuses_no_linears
from walkback.credit.rule import EXACT, UNRELATED, CreditRule, Credits, Label, Logs, transport
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Linear, Network


@dataclass(frozen=True)
class PerLinearRule(CreditRule):
    """Credit enters a block at its output, so blocks are trained by the credit of their output state (site=output)."""

    sites = ("output",)
    through_blocks = True
    per_token = True
    label: ClassVar[Label] = UNRELATED
    """The label of all layers but the top one."""

    @abstractmethod
    def feedback(self, key: str, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        """The feedback matrix [fan_in, fan_out] that replaces the transpose of `weight` [fan_out, fan_in].

        `key` is the Linear's "block.name", as in `blocks.<key>.weight`.
        """

    def refuses(self, net: Network) -> str | None:
        return refuses_no_linears(net)

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(self.label,) * depth, EXACT)

    def linears(self, net: Network, state: Leaves, noise: Leaves) -> list[Linear]:
        def linear_of(block: int) -> Linear:
            def linear(name: str, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
                return feedback_linear(x, weight, bias, self.feedback(f"{block}.{name}", weight, state, noise))

            return linear

        return [linear_of(block) for block in range(net.depth)]

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        return transport(trace), {}


def keys(net: Network) -> Iterator[tuple[str, int, int]]:
    """("block.name", fan_in, fan_out) of every Linear inside a block, bottom up."""
    for block in range(net.depth):
        for name, fan_in, fan_out in net.block_linears:
            yield f"{block}.{name}", fan_in, fan_out
