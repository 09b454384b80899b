"""D1, scale stability: does the hidden state grow too much from one layer to the next?

Formula: rho = max over l of |h_{l+1}| / |h_l|; norms are means over samples
Threshold: fails above h_norm_explosion_ratio (50)
Mode: 1a, scale growth
Misleads: steady growth below 50 per block multiplies up unnoticed; read the norms of all layers as well
Alone: reported, not a failure in the edition three; a failure in the edition four
"""

from __future__ import annotations

import math
from functools import partial

from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag, factor
from walkback.judge.number import first_bad
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds


def check(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> Flag:
    limit = t.h_norm_explosion_ratio
    flag = partial(Flag, "D1", "scale stability", threshold=limit, side="above", unit="x", n=q.samples)
    if q.overflow is not None:
        reason = f"h_{q.overflow} is infinite after a finite h_{q.overflow - 1}: it outgrew {q.dtype}"
        return flag("raised", reason, value=math.inf, layer=q.overflow)
    known = {index: ratio.known for index, ratio in q.growth.items() if ratio.ok}
    bad = first_bad(q.growth.values())
    block = max(known, key=lambda index: known[index]) if known else None
    # A known ratio above the limit decides, whatever the unknown ones are.
    if block is not None and (known[block] > limit or bad is None):
        rho = known[block]
        raised = rho > limit
        words = "above" if raised else "not above"
        return flag(
            "raised" if raised else "clear",
            f"the largest growth is |h_{block + 1}| / |h_{block}| = {q.growth[block]:.4g}, {words} {limit:g}",
            value=rho,
            layer=block + 1,
            margin=factor(rho, limit),
            flips_at=rho,
        )
    if bad is not None:
        return flag("missing", bad.reason, invalid=bad.status == "invalid")
    return flag("not_informative", "the only growth is from a cls token that is the same for every sample")


CHECK = check
