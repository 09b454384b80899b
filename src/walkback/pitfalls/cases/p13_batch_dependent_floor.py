"""A floor on the gradient of the mean loss depends on the batch it is measured with.

Wrong: the mean-loss gradient norm of the same samples in batches of 128 and in one of 1024, against one floor
Right: each sample's own gradient, given @128 whatever the batch
Size: at least 7.99 x between the two batch sizes
Linter: WB015
"""

from __future__ import annotations

import torch
from torch import Tensor

from walkback.core.measurements import GROUP
from walkback.measure.inputs import regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import measure
from walkback.measure.subject import NetworkSubject
from walkback.measure.vectors import as_rows, norms
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    trained = small_networks.trained("bp")
    x, y = small_networks.samples()
    wrong, right = [], []
    for batch in (GROUP, small_networks.PITFALL_SAMPLES):
        batches = list(zip(torch.split(x, batch), torch.split(y, batch), strict=True))
        gradients = [small_networks.mean_loss_gradients(trained.net, trained.params, *each)[-1] for each in batches]
        wrong.append(_mean_norm(torch.cat(gradients)))
        subject = NetworkSubject(trained.net, trained.params)
        measurements = measure(subject, regroup(batches, distinct=True), MeasureOptions(replay=False))
        right.append(float(measurements.arrays["grad_norm"][-1].mean()) / GROUP)
    texts = [f"{at_128:.3g} in 128s, {at_1024:.3g} in 1024" for at_128, at_1024 in (wrong, right)]
    return PitfallOutcome(texts[0], texts[1], wrong[0] / wrong[1] / (right[0] / right[1]), "x", 7.99)


def _mean_norm(gradient: Tensor) -> float:
    return norms(as_rows(gradient)).mean().item()
