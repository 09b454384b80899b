"""Methods with a training loop of their own whose truth is known, measured by `diagnose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import walkback
from walkback.core.random_streams import generator
from walkback.measure.snapshot import majority_share
from walkback_papers.calibration import known_credits, own_loop
from walkback_papers.calibration.own_loop import OwnNet, OwnTask, Training
from walkback_papers.calibration.seed_results import Answers, SeedResult

EXACT_CREDIT = {"credit": "backward"}
"""The backward pass of plain PyTorch: exact at every layer."""
OWN_SHARE = 0.7
"""What the lying backward pass has of the weights in the healthy case: the cosine of its matrices with them."""
TURNED_COSINES = (0.5, 0.1)
"""Cosines of credits that are aligned by construction."""

OWN_BACKPROP, RESET = "own loop: backprop", "own loop: blocks reset after training"
OWN_DEPTH_METHODS = (
    OWN_BACKPROP,
    "own loop: sign of the blocks' gradient flipped",
    "own loop: feedback redrawn every step",
    RESET,
    "own loop: stream exploded after training",
    "own loop: constant predictions",
)
"""Their depth is judged: its truth is the margin over all seeds."""


@dataclass(frozen=True)
class _Trainings:
    """The networks of one seed."""

    task: OwnTask
    seed: int

    @cached_property
    def backprop(self) -> OwnNet:
        return self.task.trained(self.seed, "backprop")

    @cached_property
    def backprop_frozen(self) -> OwnNet:
        return self.task.trained(self.seed, "backprop", frozen=True)

    def result(self, model: OwnNet, given: Mapping[str, Any], frozen: OwnNet | None = None) -> SeedResult:
        """The seed's result for a model; without `frozen` its baseline is that of backprop."""
        report = walkback.diagnose(
            model, [(self.task.data.test_x, self.task.data.test_y)], blocks=list(model.blocks), **given
        )
        baseline = self._right[1] if frozen is None else self.task.right(frozen)
        own, bp = Answers.of(self.task.right(model), baseline), Answers.of(*self._right)
        return SeedResult.of(self.seed, own, bp, report.quantities)

    @cached_property
    def _right(self) -> tuple[Any, Any]:
        return self.task.right(self.backprop), self.task.right(self.backprop_frozen)


def own_results(task: OwnTask, seeds: Sequence[int]) -> dict[str, Any]:
    """The results of every method, by its name."""
    methods: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        for name, result in _results_of_seed(_Trainings(task, seed)).items():
            methods.setdefault(name, []).append(result.to_json())
    return {"majority_share": majority_share(task.data.test_y), "methods": methods}


def _results_of_seed(trainings: _Trainings) -> dict[str, SeedResult]:
    return _trained(trainings) | _with_known_credit(trainings)


def _trained(t: _Trainings) -> dict[str, SeedResult]:
    """Methods whose depth is judged."""
    flipped, redrawn = (t.task.trained(t.seed, training) for training in ("flipped sign", "redrawn feedback"))
    redrawn_frozen = t.task.trained(t.seed, "redrawn feedback", frozen=True)
    training: Training = "flipped sign"
    reset = own_loop.with_blocks_reset(t.backprop, t.task.network(t.seed))
    results = (
        t.result(t.backprop, EXACT_CREDIT),
        t.result(flipped, {"update": partial(own_loop.backward_pass, training=training)}),
        t.result(redrawn, {}, redrawn_frozen),
        t.result(reset, EXACT_CREDIT),
        t.result(own_loop.with_exploded_stream(t.backprop), EXACT_CREDIT),
        t.result(own_loop.with_constant_predictions(t.backprop), EXACT_CREDIT),
    )
    return dict(zip(OWN_DEPTH_METHODS, results, strict=True))


def _with_known_credit(t: _Trainings) -> dict[str, SeedResult]:
    """Networks trained by backprop with credits that are not backprop's: only their alignment is of interest."""
    seed, model = t.seed, t.backprop
    deepest, states = len(model.blocks), set(range(len(model.blocks)))
    credits: dict[str, Any] = {
        f"gradient turned to cosine {cosine:g}": known_credits.gradient_at_cosine(cosine, seed)
        for cosine in TURNED_COSINES
    }
    credits |= {
        "gradient with the wrong sign": known_credits.against_gradient,
        "another sample's gradient": known_credits.of_another_sample,
        "noise in block 0, cosine 0.5 elsewhere": known_credits.noise_at({1}, 0.5, seed),
    }
    results = {name: t.result(model, {"credit": credit}) for name, credit in credits.items()}
    projected = known_credits.projected_error(generator(seed, "feedback after training"))
    drawn_again = {"credit": projected, "fresh": known_credits.projected_error}
    results["feedback drawn after training"] = t.result(model, drawn_again)
    top_exact = known_credits.noise_at(states, 1.0, seed)
    results["noise, the deepest state exact"] = t.result(model, {"credit": top_exact, "exact": [deepest]})
    related, unrelated = (own_loop.with_feedback(model, seed, share) for share in (OWN_SHARE, 0.0))
    results[RELATED_FEEDBACK] = t.result(related, {})
    results[UNRELATED_FEEDBACK] = t.result(unrelated, {})
    return results


RELATED_FEEDBACK = f"lying backward pass, matrices at cosine {OWN_SHARE:g} to the weights"
UNRELATED_FEEDBACK = "lying backward pass, matrices unrelated to the weights"

ALIGNED: Mapping[str, bool] = {
    **{name: name not in OWN_DEPTH_METHODS[1:3] for name in OWN_DEPTH_METHODS},
    **{f"gradient turned to cosine {cosine:g}": True for cosine in TURNED_COSINES},
    RELATED_FEEDBACK: True,
    UNRELATED_FEEDBACK: False,
    "gradient with the wrong sign": False,
    "another sample's gradient": False,
    "noise in block 0, cosine 0.5 elsewhere": False,
    "feedback drawn after training": False,
    "noise, the deepest state exact": False,
}
"""Whether each method's credit is aligned with the gradient in every block, by construction."""
