"""From credits to parameter gradients: the local losses.

Block l: (1/n) sum_i [ <f_l(h_l)[i], a[i]> + penalty * sum_j f_l[i, j]^2 ], with h and a constant. Where a block
changes the shape of the state, f_l is all that it returns, and only site=output is defined.
Stem: (1/n) sum_i <h_0[i], a_0[i]>. Head: the true mean loss at constant h_L.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from walkback.credit.rule import Credits
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, named


def gradients(
    trace: Trace,
    credits: Credits,
    site: Literal["output", "input"],
    penalty: Tensor | None,
    penalty_reduction: Literal["sum", "mean"],
) -> Leaves:
    """The gradients of all local losses, by leaf name. `penalty` None means no penalty, without its computation."""
    found = named(trace.stem.leaves(credits[0]), "stem")
    for index, block in enumerate(trace.blocks):
        cotangent = credits[index + 1] if site == "output" else credits[index]
        if penalty is not None:
            branch = trace.branches[index]
            features = branch[0].numel() if penalty_reduction == "mean" else 1
            cotangent = cotangent + (2 * penalty / features) * branch
        found |= named(block.leaves(cotangent), f"blocks.{index}")
    return found | named(trace.head_gradient, "head")
