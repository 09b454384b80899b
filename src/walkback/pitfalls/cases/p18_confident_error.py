"""`p_y - 1` on confident samples: the error loses its significant digits, and with them its direction.

Wrong: softmax minus one-hot in float32; the cosine of that error with the true one
Right: the label's entry as minus the sum of the others
Size: at least 0.4 in cosine, for samples that are right with a margin of 20
Linter: WB011
"""

from __future__ import annotations

import torch

from walkback.core.random_streams import generator
from walkback.credit.trace import one_hot, softmax_error
from walkback.measure.vectors import as_rows, cosines
from walkback.pitfalls.case import PitfallOutcome

MARGIN, CLASSES = 20.0, 10


def run() -> PitfallOutcome:
    draws = generator(0, "confident")
    y = torch.randint(CLASSES, (128,), generator=draws)
    target = one_hot(y, CLASSES).float()
    logits = torch.randn(128, CLASSES, generator=draws) + MARGIN * target
    true = softmax_error(logits.double(), target.double())
    wrong, right = (
        cosines(as_rows(error), true).mean().item()
        for error in (logits.softmax(-1) - target, softmax_error(logits, target))
    )
    return PitfallOutcome(wrong, right, right - wrong, "in cosine", 0.4)
