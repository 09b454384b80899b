"""`tensor.norm(-1)` is the L-1 "norm" of the whole tensor, not the length of each row.

Wrong: h.norm(-1), whose -1 is the order p: one number, the inverse of the sum of inverse entries
Right: the L2 norm of each sample's features in float64, then the mean over samples
Size: at least 10000 x too small, for 128 states of 32 features
Linter: WB001
"""

from __future__ import annotations

import torch

from walkback.core.random_streams import generator
from walkback.measure.vectors import as_rows, norms
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    h = torch.randn(128, 32, generator=generator(0, "norm"))
    wrong, right = h.norm(-1).item(), norms(as_rows(h)).mean().item()
    return PitfallOutcome(wrong, right, right / wrong, "x", 1e4)
