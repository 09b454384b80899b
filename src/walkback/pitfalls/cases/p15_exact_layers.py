"""Layers whose credit is the gradient by construction are counted: untrained feedback alignment looks aligned.

Wrong: the mean over h_1..h_L, with the top layer, where feedback alignment starts from the true gradient
Right: the mean over layers whose credit could have been wrong
Size: at least 0.2 in cosine, of a network that has learned nothing
Linter: WB005
"""

from __future__ import annotations

from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    resolved = small_networks.resolved("fa")
    untrained = small_networks.TrainedNetwork(resolved, resolved.params(), resolved.state(), accuracy=0.0)
    aggregates = untrained.quantities.aggregates
    wrong, right = aggregates.deep_mean_papers.known, aggregates.deep_mean.known
    return PitfallOutcome(
        wrong, right, wrong - right, "in cosine", 0.2, f"{small_networks.DEPTH} blocks, before the first step"
    )
