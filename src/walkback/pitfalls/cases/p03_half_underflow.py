"""Hidden gradients of a mean loss underflow in float16: many of their entries become zero.

Wrong: the share of entries of the gradient at h_L that are not zero, in a float16 pass over a batch of 1024
Right: the same share in float32, with each sample's own loss (no division by the batch)
Size: at least 0.3 of all entries lost, in a network whose hidden states have grown
Linter: WB003
"""

from __future__ import annotations

import torch
from torch import Tensor

from walkback.measure.subject import NetworkSubject
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    trained = small_networks.trained(small_networks.EXPLODING_DFA, lr=0.015)
    x, y = small_networks.samples(torch.float32)
    half = small_networks.mean_loss_gradients(
        trained.net, small_networks.to_dtype(trained.params, torch.float16), x.half(), y
    )[-1]
    frozen_pass = NetworkSubject(trained.net, small_networks.to_dtype(trained.params, torch.float32)).run(x, y)
    wrong, right = _nonzero_share(half), _nonzero_share(frozen_pass.top)
    largest = frozen_pass.states[-1].abs().max().item()
    return PitfallOutcome(
        wrong, right, right - wrong, "of all entries", 0.3, f"no overflow: the largest |h| is {largest:.0f}"
    )


def _nonzero_share(gradient: Tensor) -> float:
    return (gradient != 0).double().mean().item()
