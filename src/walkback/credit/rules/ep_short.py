"""Equilibrium propagation cut short: a few small steps of all states at once, as weak relaxations in papers do.

Citation: Scellier and Bengio, 2017 (a setting of `ep`)
Feedback: the network's own weights, through the blocks' pullbacks in every step
State: none
Exact: no layer; every layer as beta goes to 0 and the relaxation settles, which it does not in so few steps
Cost: bp's forward pass and weight gradients; beside them `steps` forward passes and input pullbacks of both nudges

Credit sinks one state per step, and shrinks by about eta on its way: lower layers get little more than a trace of it.
An optimiser that normalises gradients (AdamW) hides this from the accuracy; the norms beside the cosines show it.
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
