"""Depth utility against an unmatched baseline: a weaker one makes random depth look trained.

Wrong: the margin over a frozen baseline of a quarter of the width
Right: the margin over the method's own frozen baseline: the same width, seed and steps, only the blocks frozen
Size: at least 3 pp of margin that are not due to the trained blocks
Linter: none
"""

from __future__ import annotations

from walkback.judge.statistics import paired_margin
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome

FROZEN_BASELINE = f"{small_networks.EXPLODING_DFA},shell=method"


def run() -> PitfallOutcome:
    method, matched, narrow = (
        small_networks.trained(small_networks.EXPLODING_DFA),
        small_networks.trained(FROZEN_BASELINE),
        small_networks.trained(FROZEN_BASELINE, d=8),
    )
    wrong, right = (paired_margin([method.accuracy], [frozen.accuracy]).mean for frozen in (narrow, matched))
    baselines = f"matched frozen baseline {matched.accuracy:.3f}, narrow one {narrow.accuracy:.3f}"
    note = f"accuracy {method.accuracy:.3f}; {baselines}"
    return PitfallOutcome(f"{wrong:+.1f} pp", f"{right:+.1f} pp", wrong - right, "pp", 3.0, note)
