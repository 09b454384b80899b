"""Control: per-layer feedback with the true weights, which must equal backprop.

Citation: this project (control)
Feedback: per-layer, B = W transposed
State: none
Exact: every layer
Cost: bp's, through the code path of per-layer feedback
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from walkback.credit.perlinear_rule import PerLinearRule
from walkback.credit.rule import EXACT, Label
from walkback.nets.network import BlockLayer, Leaves, transpose


@dataclass(frozen=True)
class Sham(PerLinearRule):
    def feedback(self, layer: BlockLayer, weight: Tensor, state: Leaves, noise: Leaves) -> Tensor:
        return transpose(weight)

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (EXACT,) * (depth + 1)


RULE = Sham
