"""One mean hides which layers are aligned: the first may carry what the deep ones lack.

Wrong: the mean over layers as the alignment of every layer
Right: each layer's cosine beside its null, and the largest share that one layer holds
Size: at least 0.3 in cosine between the best and the worst layer
Linter: WB005
"""

from __future__ import annotations

from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    trained = small.trained(small.EXPLODED)
    found, layers = trained.quantities.aggregates, trained.cosines
    told = " ".join(f"{cos:+.2f}" for cos in layers)
    note = f"layer {found.concentration_layer} holds {found.concentration.known:.0%} of what is above its null"
    return PitfallOutcome(
        found.a1.known, f"{told} (h_0 to h_{len(layers) - 1})", max(layers) - min(layers), "in cosine", 0.3, note
    )
