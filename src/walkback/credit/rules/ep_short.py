"""Equilibrium propagation cut short: a few small simultaneous steps of all states, as in weak relaxations of papers.

Citation: Scellier and Bengio, 2017 (a setting of `ep`)
Feedback: the network's own weights, through the blocks' pullbacks in every step
State: none
Exact: no layer; every layer as beta goes to 0 and the relaxation converges, which takes more steps
Cost: bp's forward pass and weight gradients; plus `steps` forward passes and input pullbacks of both nudges

Credit moves down one state per step and shrinks by a factor of about eta each time, so lower layers get very little.
An optimiser that normalises gradients (AdamW) hides this in the accuracy; the credit norms show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walkback.credit.rule import dynamic
from walkback.credit.rules.ep import EquilibriumPropagation


@dataclass(frozen=True)
class ShortEquilibriumPropagation(EquilibriumPropagation):
    eta: float = dynamic(0.1)
    steps: int = 5
    sweep: Literal["top_down", "simultaneous"] = "simultaneous"


RULE = ShortEquilibriumPropagation
