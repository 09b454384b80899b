"""Backpropagation: a_l is the gradient of the sample's loss in h_l.

Citation: Rumelhart, Hinton and Williams, 1986
Feedback: the network's own weights
State: none
Exact: every layer; with site=input block l gets g_l, which is exact at h_l but not the gradient of its output
Cost: the unit of cost: a forward pass, an input pullback through the blocks, and the weight gradients
"""

from __future__ import annotations

from dataclasses import dataclass

from walkback.credit.rule import EXACT, CreditRule, Credits, Label, Logs, transport
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class Backprop(CreditRule):
    through_blocks = True
    per_token = True

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (EXACT,) * (depth + 1)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        return transport(trace), {}


RULE = Backprop
