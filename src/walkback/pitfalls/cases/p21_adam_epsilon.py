"""AdamW's epsilon: once gradients are near 1e-8 the step depends on their size and vanishes.

Wrong: the step of AdamW with its default eps of 1e-8 after the loss was scaled by 1e-7, as a share of the step before
Right: the same with eps scaled as the loss was
Size: at least 10 x too small a step
Linter: none
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome

_EPS, _LOSS_SCALE = 1e-8, 1e-7


def run() -> PitfallOutcome:
    gradient = _gradient()
    whole = _step(gradient, _EPS)
    wrong, right = (_step(_LOSS_SCALE * gradient, eps) / whole for eps in (_EPS, _EPS * _LOSS_SCALE))
    note = f"median |g| {gradient.abs().median().item():.1e} before scaling"
    return PitfallOutcome(wrong, right, right / wrong, "x", 10.0, note)


def _gradient() -> Tensor:
    """The gradient of the mean loss in a weight of a trained network's first block."""
    trained = small_networks.trained("bp")
    name = "blocks.0.w1.weight"
    weight = trained.params[name].clone().requires_grad_()
    x, y = small_networks.samples()
    loss = F.cross_entropy(trained.net.forward({**trained.params, name: weight}, x), y)
    return torch.autograd.grad(loss, weight)[0]


def _step(gradient: Tensor, eps: float) -> float:
    """The length of AdamW's first step."""
    leaf = torch.zeros_like(gradient)
    leaf.grad = gradient
    torch.optim.AdamW([leaf], lr=1e-3, eps=eps, weight_decay=0.0).step()
    return float(torch.linalg.vector_norm(leaf))
