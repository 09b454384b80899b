"""Control: per-Linear feedback with the true weights, so that the custom path must equal backprop.

Citation: this project (control)
Feedback: per-Linear, B = W transposed
State: none
Exact: every layer
Cost: bp's, through a path of its own
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from walkback.credit.perlinear import feedback_linear, refuses_no_linears
from walkback.credit.rule import EXACT, CreditRule, Credits, Label, Logs, transport
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Linear, Network


@dataclass(frozen=True)
class Sham(CreditRule):
    sites = ("output",)
    through_blocks = True

    def refuses(self, net: Network) -> str | None:
        return refuses_no_linears(net)

    def linears(self, net: Network, state: Leaves, noise: Leaves) -> list[Linear]:
        return [_true_weights] * net.depth

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (EXACT,) * (depth + 1)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        return transport(trace), {}


def _true_weights(_name: str, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return feedback_linear(x, weight, bias, weight.mT)


RULE = Sham
