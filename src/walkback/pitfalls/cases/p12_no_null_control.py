"""An intervention without a control: a gain that the frozen baseline has too is not due to trained depth.

Wrong: attribute the whole gain in accuracy from a ten times larger learning rate to better credit for the blocks
Right: the gain minus that of the method's frozen baseline under the same change
Size: at least 5 pp of the gain occur in the frozen baseline too
Linter: none
"""

from __future__ import annotations

from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome

LR_BEFORE, LR_AFTER = 1e-3, 1e-2


def run() -> PitfallOutcome:
    wrong, control = _gain(small_networks.EXPLODING_DFA), _gain(f"{small_networks.EXPLODING_DFA},shell=method")
    note = f"the frozen baseline gains {control:+.1f} pp"
    return PitfallOutcome(f"{wrong:+.1f} pp", f"{wrong - control:+.1f} pp", control, "pp", 5.0, note)


def _gain(method: str) -> float:
    """The gain in test accuracy from the larger learning rate, in percentage points."""
    return 100 * (
        small_networks.trained(method, lr=LR_AFTER).accuracy - small_networks.trained(method, lr=LR_BEFORE).accuracy
    )
