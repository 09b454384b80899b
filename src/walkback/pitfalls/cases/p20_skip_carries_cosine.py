"""With per-Linear feedback the skip carries the cosine: random feedback in the branches looks aligned.

Wrong: the cosine at h_0 of credit whose branches send it back through random matrices
Right: the same of what the branches added: credit and gradient, each less what the skip alone brings
Size: at least 0.2 in cosine that random feedback did not earn
Linter: none
"""

from __future__ import annotations

from torch import Tensor

from walkback.core.random_streams import generator
from walkback.credit.feedback import gaussian
from walkback.credit.perlinear import feedback_linear
from walkback.credit.rule import Credits, transport
from walkback.credit.trace import trace
from walkback.measure.vectors import as_rows, cosines
from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    gradient, credit, skip = _credits("true"), _credits("random"), _credits("none")
    wrong, alone = (cosines(as_rows(each[0]), as_rows(gradient[0])).mean().item() for each in (credit, skip))
    right = cosines(as_rows(credit[0] - skip[0]), as_rows(gradient[0] - skip[0])).mean().item()
    return PitfallOutcome(
        wrong, right, wrong - right, "in cosine", 0.2, f"with feedback 0 in every branch: {alone:.3f}"
    )


def _credits(feedback: str) -> Credits:
    """Credit through a trained network, its branches passed by the weights, random matrices of their size, or not."""
    trained = small.trained("bp")
    draws = generator(0, "branch feedback")

    def linear(_name: str, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        size = weight.std().item() if feedback == "random" else 0.0
        drawn = gaussian((weight.shape[1], weight.shape[0]), size, draws).to(weight.dtype)
        return feedback_linear(h, weight, bias, weight.T if feedback == "true" else drawn)

    seen = trace(trained.net, trained.params, *small.samples(), [linear] * trained.net.depth, with_input=True)
    return transport(seen)
