"""With per-Linear feedback the skip path dominates the cosine: random feedback in the branches looks aligned.

Wrong: the cosine at h_0 of credit that passes through random matrices in the branches
Right: the same of the branches' part: credit and gradient, each minus the part from the skip path alone
Size: at least 0.2 in cosine that is not due to the feedback
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
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


def run() -> PitfallOutcome:
    gradient, credit, skip = _credits("true"), _credits("random"), _credits("none")
    wrong, alone = (cosines(as_rows(each[0]), as_rows(gradient[0])).mean().item() for each in (credit, skip))
    right = cosines(as_rows(credit[0] - skip[0]), as_rows(gradient[0] - skip[0])).mean().item()
    return PitfallOutcome(
        wrong, right, wrong - right, "in cosine", 0.2, f"with feedback 0 in every branch: {alone:.3f}"
    )


def _credits(feedback: str) -> Credits:
    """Credit in a trained network; the branches' feedback is the "true" weights, "random" of that size, or "none"."""
    trained = small_networks.trained("bp")
    draws = generator(0, "branch feedback")

    def linear(_name: str, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        size = weight.std().item() if feedback == "random" else 0.0
        drawn = gaussian((weight.shape[1], weight.shape[0]), size, draws).to(weight.dtype)
        return feedback_linear(h, weight, bias, weight.T if feedback == "true" else drawn)

    traced = trace(
        trained.net, trained.params, *small_networks.samples(), [linear] * trained.net.depth, with_input=True
    )
    return transport(traced)
