"""Hidden gradients of a mean loss underflow in float16: many of their entries become zero.

Wrong: the share of entries of the gradient at h_L that are not zero, by a float16 pass over a batch of 1024
Right: the same share in float32, with each sample's own loss (no division by the batch)
Size: at least 0.3 of all entries lost, in a network whose hidden states have grown
Linter: WB003
"""

from __future__ import annotations

import torch
from torch import Tensor

from walkback.measure.subject import OwnSubject
from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    trained = small.trained(small.EXPLODED, lr=0.015)
    x, y = small.samples(torch.float32)
    half = small.mean_loss_gradients(trained.net, small.typed(trained.params, torch.float16), x.half(), y)[-1]
    seen = OwnSubject(trained.net, small.typed(trained.params, torch.float32)).run(x, y)
    wrong, right = _not_zero(half), _not_zero(seen.top)
    largest = seen.states[-1].abs().max().item()
    return PitfallOutcome(
        wrong, right, right - wrong, "of all entries", 0.3, f"no overflow: the largest |h| is {largest:.0f}"
    )


def _not_zero(gradient: Tensor) -> float:
    return (gradient != 0).double().mean().item()
