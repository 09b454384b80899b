"""Alignment is specific to the feedback that was trained with: against a freshly drawn B it vanishes.

Wrong: draw a new B when measuring; the mean cosine of the deep layers over 20 draws
Right: the B that the network was trained with, saved with the run
Size: at least 0.15 in cosine, several standard deviations of the fresh draws
Linter: WB007, WB017, WB018
"""

from __future__ import annotations

from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    aggregates = small_networks.trained("dfa").quantities.aggregates
    fresh = aggregates.deep_mean_fresh
    assert fresh is not None
    right = aggregates.deep_mean.known
    note = f"sd of one fresh draw {fresh.std:.3f}, so z = {fresh.z.known:.1f}"
    return PitfallOutcome(fresh.mean, right, right - fresh.mean, "in cosine", 0.15, note)
