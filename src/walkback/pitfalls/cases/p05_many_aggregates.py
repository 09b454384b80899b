"""Alignment "of the network" is not one number: ways of aggregating differ several-fold, and in sign.

Wrong: one unnamed aggregate, here the lowest of the four
Right: all four by name: A1 mean over layers, A2 joint, A3 of group means, A4 weighted by the gradient
Size: at least 3 x between the largest and the smallest in absolute value, of one network on the same samples
Linter: WB005
"""

from __future__ import annotations

from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    aggregates = small_networks.trained(small_networks.EXPLODING_DFA).quantities.aggregates
    values = {
        "A1": aggregates.a1.known,
        "A2": aggregates.a2.known,
        "A3": aggregates.a3.known,
        "A4": aggregates.a4.known,
    }
    sizes = [abs(value) for value in values.values()]
    text = ", ".join(f"{name} {value:+.3f}" for name, value in values.items())
    signs = "both signs occur" if min(values.values()) < 0 < max(values.values()) else "one sign"
    return PitfallOutcome(min(values.values()), text, max(sizes) / min(sizes), "x", 3.0, signs)
