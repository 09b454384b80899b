"""States normalised before they are logged: the log does not show how they grow.

Wrong: the largest growth from one layer to the next, of states that went through F.layer_norm first
Right: the same of the raw states
Size: at least 50 x: growth (D1) fails, and the log does not show it
Linter: WB013
"""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor

from walkback.judge.checks import d1
from walkback.judge.evidence import Evidence
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.subject import NetworkSubject
from walkback.measure.vectors import as_rows, norms
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    trained = small_networks.trained(small_networks.EXPLODING_DFA)
    states = NetworkSubject(trained.net, trained.params).run(*small_networks.samples()).states
    wrong = _growth([F.layer_norm(h, h.shape[1:]) for h in states])
    flag = d1.check(trained.quantities, Evidence(), DiagnosticThresholds())
    assert flag.value is not None
    return PitfallOutcome(
        wrong,
        flag.value,
        flag.value / wrong,
        "x",
        50.0,
        f"growth (D1) {'fails' if flag.status == 'raised' else 'passes'}",
    )


def _growth(states: list[Tensor]) -> float:
    """The largest ratio of mean norms from one state to the next."""
    sizes = [norms(as_rows(h)).mean().item() for h in states]
    return max(after / before for before, after in pairwise(sizes))
