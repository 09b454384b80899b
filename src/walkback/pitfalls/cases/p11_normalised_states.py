"""States normalised before they are logged: the growth that the log was for is gone.

Wrong: the largest growth from one layer to the next, of states that went through F.layer_norm first
Right: the same of the raw states
Size: at least 50 x: enough to raise D1, and nothing of it in the log
Linter: WB013
"""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor

from walkback.judge.checks import d1
from walkback.judge.evidence import Evidence
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.subject import OwnSubject
from walkback.measure.vectors import as_rows, norms
from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    trained = small.trained(small.EXPLODED)
    states = OwnSubject(trained.net, trained.params).run(*small.samples()).states
    wrong = _growth([F.layer_norm(h, h.shape[1:]) for h in states])
    flag = d1.check(trained.quantities, Evidence(), DiagnosticThresholds())
    assert flag.value is not None
    return PitfallOutcome(wrong, flag.value, flag.value / wrong, "x", 50.0, f"D1 is {flag.status}")


def _growth(states: list[Tensor]) -> float:
    sizes = [norms(as_rows(h)).mean().item() for h in states]
    return max(after / before for before, after in pairwise(sizes))
