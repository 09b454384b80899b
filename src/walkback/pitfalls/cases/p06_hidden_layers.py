"""One mean hides which layers are aligned: the first may be aligned and the deep ones not.

Wrong: the mean over layers as the alignment of every layer
Right: each layer's cosine beside its null, and the share of alignment in the largest layer
Size: at least 0.3 in cosine between the best and the worst layer
Linter: WB005
"""

from __future__ import annotations

from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    trained = small_networks.trained(small_networks.EXPLODING_DFA)
    aggregates, layers = trained.quantities.aggregates, trained.cosines
    text = " ".join(f"{cos:+.2f}" for cos in layers)
    share, layer = aggregates.concentration.known, aggregates.concentration_layer
    note = f"layer {layer} has {share:.0%} of the alignment above its null"
    return PitfallOutcome(
        aggregates.a1.known, f"{text} (h_0 to h_{len(layers) - 1})", max(layers) - min(layers), "in cosine", 0.3, note
    )
