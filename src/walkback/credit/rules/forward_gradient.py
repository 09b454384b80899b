"""Forward gradient: a random direction times the loss's exact derivative along it, by forward-mode differentiation.

Citation: Baydin, Pearlmutter, Syme, Wood and Torr, 2022; for activations: Ren, Kornblith, Liao and Hinton, 2023
Feedback: none: one number per sample and layer, from a tangent propagated forward with the state
State: none
Exact: no layer; on average over draws every layer
Cost: bp's forward pass and weight gradients; plus `draws` forward passes with tangents from each state

a_l = xi <gradient of the loss in h_l, xi>, with xi from N(0, I) for each sample and layer: the limit of node
perturbation for steps of length 0. There is no backward pass. The cosine of the average over N draws with the gradient
is about 1 / sqrt(1 + (d + 1) / N), d the number of features of a state.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.func import jvp

from walkback.core.settings import require_at_least
from walkback.credit import perturb
from walkback.credit.rule import CreditRule, Credits, Logs
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network

with warnings.catch_warnings():
    # The first forward-mode derivative makes torch load decompositions, with a DeprecationWarning of its own.
    warnings.simplefilter("ignore", DeprecationWarning)
    jvp(torch.sin, (torch.zeros(()),), (torch.ones(()),))


@dataclass(frozen=True)
class ForwardGradient(CreditRule):
    draws: int = 1
    """Number of directions averaged for each sample and layer."""

    def __post_init__(self) -> None:
        require_at_least(self.draws, 1, "draws of forward_gradient")

    def refuses(self, net: Network) -> str | None:
        return perturb.perturbation_refusal(net)

    def draw(self, net: Network, batch: int, generator: Generator) -> Leaves:
        return perturb.directions(net, batch, self.draws, generator)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        xis = noise[perturb.XI].unbind(2)
        target = trace.target.repeat_interleave(self.draws, 0)

        def losses(*states: Tensor) -> tuple[Tensor, ...]:
            return perturb.losses_above(net, params, states, target)

        copies = tuple(h.repeat_interleave(self.draws, 0) for h in trace.states)
        rates = jvp(losses, copies, tuple(xi.flatten(0, 1) for xi in xis))[1]
        return tuple(perturb.estimate(rate, xi) for rate, xi in zip(rates, xis, strict=True)), {}


RULE = ForwardGradient
