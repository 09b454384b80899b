"""`F.cosine_similarity` clamps each norm at 1e-8: small gradients look unaligned, and casting to double does not help.

Wrong: F.cosine_similarity of a gradient of length 1e-9 with itself, in float64
Right: divide by the norms without any epsilon
Size: at least 99 x too small: (1e-9 / 1e-8)^2 of the true cosine, which is 1
Linter: WB002, WB015
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from walkback.core.random_streams import generator
from walkback.measure.vectors import as_rows, cosines, units
from walkback.pitfalls.case import PitfallOutcome

LENGTH = 1e-9


def run() -> PitfallOutcome:
    g = LENGTH * units(as_rows(torch.randn(128, 32, generator=generator(0, "clamp"))))
    wrong, right = F.cosine_similarity(g, g).mean().item(), cosines(g, g).mean().item()
    credit = g / LENGTH
    one_sided = F.cosine_similarity(credit, g).mean().item()
    return PitfallOutcome(
        wrong, right, right / wrong, "x", 99.0, f"against the same credit at length 1: {one_sided:.3g}"
    )
