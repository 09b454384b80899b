"""Reference and credit from different batches, augmentations or masks: even exact credit looks unaligned.

Wrong: backprop's credit from one batch against backprop's reference from the next
Right: both from one frozen pass over the same samples
Size: at least 0.7 in cosine, where the truth is 1
Linter: WB016
"""

from __future__ import annotations

import torch

from walkback.core.measurements import GROUP
from walkback.core.random_streams import generator
from walkback.measure.subject import NetworkSubject
from walkback.measure.vectors import as_rows, cosines
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome

JITTER = 0.2
"""Noise added to the inputs, in place of an augmentation."""


def run() -> PitfallOutcome:
    trained = small_networks.trained("bp")
    subject = NetworkSubject(trained.net, trained.params, trained.resolved.rule)
    x, y = small_networks.samples()
    frozen_pass, other_batch = (
        subject.run(x[:GROUP], y[:GROUP]),
        subject.run(x[GROUP : 2 * GROUP], y[GROUP : 2 * GROUP]),
    )
    noise = JITTER * torch.randn(GROUP, x.shape[1], generator=generator(0, "jitter"), dtype=x.dtype)
    augmented_pass = subject.run(x[:GROUP] + noise, y[:GROUP])
    credit = subject.credit(frozen_pass)
    assert credit is not None
    right, wrong, augmented = (
        cosines(as_rows(credit[0]), as_rows(each.reference[0])).mean().item()
        for each in (frozen_pass, other_batch, augmented_pass)
    )
    note = f"the same samples with another augmentation: {augmented:.3f}"
    return PitfallOutcome(wrong, right, right - wrong, "in cosine", 0.7, note)
