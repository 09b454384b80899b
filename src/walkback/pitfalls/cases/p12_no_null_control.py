"""An intervention without its null control: what helps the frozen shell as well says nothing about trained depth.

Wrong: credit the whole gain in accuracy from a ten times larger learning rate to better credit for the blocks
Right: less what the same change gives the method's shell, whose blocks are frozen
Size: at least 5 pp of the gain are the shell's
Linter: none
"""

from __future__ import annotations

from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome

BEFORE, AFTER = 1e-3, 1e-2


def run() -> PitfallOutcome:
    wrong, control = _gain(small.EXPLODED), _gain(f"{small.EXPLODED},shell=method")
    note = f"the shell gains {control:+.1f} pp"
    return PitfallOutcome(f"{wrong:+.1f} pp", f"{wrong - control:+.1f} pp", control, "pp", 5.0, note)


def _gain(method: str) -> float:
    """In percentage points of test accuracy."""
    return 100 * (small.trained(method, lr=AFTER).accuracy - small.trained(method, lr=BEFORE).accuracy)
