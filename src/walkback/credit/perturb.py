"""Shared code of the rules that perturb hidden states: random directions, losses from given states, averages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from walkback.credit.losses import sample_losses
from walkback.credit.rule import PER_SAMPLE
from walkback.nets.network import Leaves, Network, part

XI = f"{PER_SAMPLE}xi"
"""Directions from N(0, I): [n, draws, L + 1, *state_shape]."""


def directions(net: Network, batch: int, draws: int, generator: Generator) -> Leaves:
    """The noise of one step: `draws` random directions for each sample and layer."""
    return {XI: torch.randn(batch, draws, net.depth + 1, *net.state_shape, generator=generator)}


def perturbation_refusal(net: Network) -> str | None:
    """Why a sample's loss is not a function of its own states alone on this network; None if it is."""
    if not net.has_one_shape:
        return "the hidden states change their shape from block to block, and it perturbs states of one shape"
    if net.in_training() is net:
        return None
    return (
        "in training it uses the statistics of the batch or dropout, so a sample's loss is not a function of its own "
        "states alone"
    )


def losses_above(net: Network, params: Leaves, states: Sequence[Tensor], target: Tensor) -> tuple[Tensor, ...]:
    """For each layer l, the losses [m] that the rest of the network gives for the states h_l [m, *state_shape].

    Rows started at lower layers pass each block together with those that start there: one forward pass, not L + 1.
    """
    rows = states[0]
    for index, fresh in enumerate(states[1:]):
        rows = torch.cat([net.next_state(index, part(params, f"blocks.{index}"), rows), fresh])
    logits = net.head(part(params, "head"), rows)
    return sample_losses(logits, target.repeat(len(states), 1)).chunk(len(states))


def estimate(rates: Tensor, xi: Tensor) -> Tensor:
    """The credit [n, *state_shape]: the mean over draws of direction `xi` [n, draws, *state_shape] times its rate."""
    return (rates.reshape(*xi.shape[:2], *(1,) * (xi.ndim - 2)) * xi).mean(1)
