"""What rules that shake the states share: the directions, the rest of the network above each state, the average."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from walkback.credit.losses import sample_losses
from walkback.credit.rule import EACH
from walkback.nets.network import Leaves, Network, part

XI = f"{EACH}xi"
"""Directions from N(0, I): [n, draws, L + 1, *state_shape]."""


def directions(net: Network, batch: int, draws: int, generator: Generator) -> Leaves:
    return {XI: torch.randn(batch, draws, net.depth + 1, *net.state_shape, generator=generator)}


def perturbation_refusal(net: Network) -> str | None:
    """Why a sample's loss as a function of its own states alone is not defined; None where it is."""
    if net.in_training() is net:
        return None
    return "in training its norms use the statistics of the batch, so a sample's loss is not its own states' alone"


def losses_above(net: Network, params: Leaves, states: Sequence[Tensor], target: Tensor) -> tuple[Tensor, ...]:
    """For each layer, the losses [m] of the rest of the network from states h_l [m, *state_shape] given for it.

    What was started at lower layers goes through a block together with what starts there: one pass, not L + 1.
    """
    rows = states[0]
    for index, fresh in enumerate(states[1:]):
        rows = torch.cat([rows + net.branch(part(params, f"blocks.{index}"), rows), fresh])
    logits = net.head(part(params, "head"), rows)
    return sample_losses(logits, target.repeat(len(states), 1)).chunk(len(states))


def estimate(rates: Tensor, xi: Tensor) -> Tensor:
    """The credit [n, *state_shape]: directions [n, draws, *state_shape] times the loss's rates along them, averaged."""
    return (rates.reshape(*xi.shape[:2], *(1,) * (xi.ndim - 2)) * xi).mean(1)
