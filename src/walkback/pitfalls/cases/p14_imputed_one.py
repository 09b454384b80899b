"""Imputing 1.0 below a floor: scaling the loss by 1e-6 turns every alignment into 1.0.

Wrong: set the cosine to 1.0 wherever a gradient's norm is under 1e-8, as a published tool does
Right: a cosine without a floor, which does not depend on the scale of the loss; zero gradients are excluded and counted
Size: at least 0.3 in cosine, with nothing changed but the unit of the loss
Linter: WB009
"""

from __future__ import annotations

import torch
from torch import Tensor

from walkback.core.measurements import GROUP
from walkback.measure.subject import NetworkSubject
from walkback.measure.vectors import as_rows, cosines, norms
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome

_FLOOR, _LOSS_SCALE, LAYER = 1e-8, 1e-6, 1


def run() -> PitfallOutcome:
    trained = small_networks.trained("dfa")
    x, y = (part[:GROUP] for part in small_networks.samples())
    subject = NetworkSubject(trained.net, trained.params, trained.resolved.rule, trained.state)
    credits = subject.credit(subject.run(x, y))
    assert credits is not None
    credit = as_rows(credits[LAYER])
    plain, scaled = (
        as_rows(small_networks.mean_loss_gradients(trained.net, trained.params, x, y, scale)[LAYER])
        for scale in (1.0, _LOSS_SCALE)
    )
    wrong, right = _imputed(credit, scaled), cosines(credit, scaled).nanmean().item()
    return PitfallOutcome(
        wrong, right, wrong - right, "in cosine", 0.3, f"before scaling: {_imputed(credit, plain):.3f}"
    )


def _imputed(credit: Tensor, gradient: Tensor) -> float:
    """The mean cosine, with 1.0 where the gradient's norm is below the floor."""
    values = cosines(credit, gradient)
    return torch.where(norms(gradient) < _FLOOR, 1.0, values).mean().item()
