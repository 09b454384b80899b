"""Depth utility against an unmatched baseline: a weaker shell makes random depth look trained.

Wrong: the margin over a shell of a quarter of the width
Right: the margin over the method's own shell: the same width, seed and steps, only the blocks frozen
Size: at least 3 pp of margin that the trained blocks have no part in
Linter: none
"""

from __future__ import annotations

from walkback.judge.statistics import paired_margin
from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome

SHELL = f"{small.EXPLODED},shell=method"


def run() -> PitfallOutcome:
    method, matched, narrow = small.trained(small.EXPLODED), small.trained(SHELL), small.trained(SHELL, d=8)
    wrong, right = (paired_margin([method.accuracy], [shell.accuracy]).mean for shell in (narrow, matched))
    note = f"accuracy {method.accuracy:.3f}; matched shell {matched.accuracy:.3f}, narrow one {narrow.accuracy:.3f}"
    return PitfallOutcome(f"{wrong:+.1f} pp", f"{right:+.1f} pp", wrong - right, "pp", 3.0, note)
