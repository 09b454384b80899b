"""Node perturbation: states are perturbed at random; credit is the perturbation times the change of the sample's loss.

Citation: Widrow and Lehr, 1990; Williams, 1992
Feedback: none: one number per sample and layer, from forward passes that start at the perturbed state
State: none
Exact: no layer; on average over draws every layer, up to order sigma^2
Cost: bp's forward pass and weight gradients; plus `draws` forward passes from each of the L + 1 states

a_l = xi (loss(h_l + s xi) - loss(h_l)) / s, with xi from N(0, I) for each sample and layer. The step s is sigma times
the root mean square of the sample's own h_l: an absolute step would be lost in the rounding of large states. The cosine
of the average over N draws with the gradient is about 1 / sqrt(1 + (d + 1) / N), d the number of features of a state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from walkback.core.settings import require_above, require_at_least
from walkback.credit import perturb
from walkback.credit.losses import sample_losses
from walkback.credit.rule import CreditRule, Credits, Logs, dynamic
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class NodePerturbation(CreditRule):
    sigma: float = dynamic(1e-2)
    """Size of the perturbation relative to the state's own. Its first-order error is odd in xi, so the bias is of order
    sigma^2, while rounding errors grow as 1/sigma: hence the default is not very small."""
    draws: int = 1
    """Number of perturbations averaged for each sample and layer."""

    def __post_init__(self) -> None:
        if not isinstance(self.sigma, Tensor):  # Inside a step it is a tensor, and was checked before.
            require_above(self.sigma, 0, "sigma of node_perturbation")
        require_at_least(self.draws, 1, "draws of node_perturbation")

    def refuses(self, net: Network) -> str | None:
        return perturb.perturbation_refusal(net)

    def draw(self, net: Network, batch: int, generator: Generator) -> Leaves:
        return perturb.directions(net, batch, self.draws, generator)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        xis = noise[perturb.XI].unbind(2)
        steps = [torch.as_tensor(self.sigma, dtype=h.dtype) * _root_mean_square(h) for h in trace.states]
        perturbed = [
            (h[:, None] + step.reshape(-1, *(1,) * h.ndim) * xi).flatten(0, 1)
            for h, step, xi in zip(trace.states, steps, xis, strict=True)
        ]
        target = trace.target.repeat_interleave(self.draws, 0)
        before = sample_losses(trace.logits, trace.target)[:, None]
        after = perturb.losses_above(net, params, perturbed, target)
        rates = [(a.reshape(-1, self.draws) - before) / s[:, None] for a, s in zip(after, steps, strict=True)]
        return tuple(perturb.estimate(rate, xi) for rate, xi in zip(rates, xis, strict=True)), {}


def _root_mean_square(h: Tensor) -> Tensor:
    """Root mean square of each sample's features [n]; 1 for a state of zeros."""
    size = h.flatten(1).square().mean(-1).sqrt()
    return torch.where(size > 0, size, 1.0)


RULE = NodePerturbation
