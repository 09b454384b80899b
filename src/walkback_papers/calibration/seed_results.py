"""What is stored of one trained network, and the claims of several judged together, as `walkback audit` judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from torch import Tensor

from walkback.core.measurements import Array
from walkback.judge.alignment_claim import alignment_of_seeds, judge_alignment
from walkback.judge.alignment_facts import AlignmentFacts, NullScore, alignment_facts
from walkback.judge.claim import Claim
from walkback.judge.depth_claim import depth_facts, judge_depth
from walkback.judge.editions import Outcome
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL, Evidence
from walkback.judge.headline import judge_headline
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds

THRESHOLDS = DiagnosticThresholds()


@dataclass(frozen=True)
class Answers:
    """How many test samples a network and its frozen baseline get right."""

    both: int
    trained_only: int
    frozen_only: int
    neither: int

    @staticmethod
    def of(trained: Array | Tensor, frozen: Array | Tensor) -> Answers:
        ours, theirs = (np.asarray(right, dtype=bool) for right in (trained, frozen))
        counts = (ours & theirs, ours & ~theirs, ~ours & theirs, ~ours & ~theirs)
        return Answers(*(int(count.sum()) for count in counts))

    @property
    def samples(self) -> int:
        return self.both + self.trained_only + self.frozen_only + self.neither

    @property
    def accuracies(self) -> tuple[float, float]:
        return (self.both + self.trained_only) / self.samples, (self.both + self.frozen_only) / self.samples

    @property
    def correct(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Correctness of each sample, by network; the order of the samples is lost, which no interval depends on."""
        cells = ((True, True), (True, False), (False, True), (False, False))
        counts = (self.both, self.trained_only, self.frozen_only, self.neither)
        pairs = [pair for pair, count in zip(cells, counts, strict=True) for _ in range(count)]
        return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


@dataclass(frozen=True)
class SeedResult:
    """One seed of a method: accuracies with those of its baselines, and what its measurements show of its credit."""

    seed: int
    own: Answers
    """Of the method and of its own frozen baseline."""
    bp: Answers
    """Of backprop and of its frozen baseline."""
    broken: str
    """Why the predictions are no predictions; empty where they are."""
    alignment: AlignmentFacts

    @staticmethod
    def of(seed: int, own: Answers, bp: Answers, q: Quantities) -> SeedResult:
        return SeedResult(seed, own, bp, q.broken, alignment_facts(q, THRESHOLDS))

    @property
    def margin(self) -> float:
        """Accuracy minus that of the own frozen baseline, in percentage points."""
        trained, frozen = self.own.accuracies
        return 100 * (trained - frozen)

    def to_json(self) -> dict[str, Any]:
        """Facts of the alignment are left out where they have their default."""
        stored = {
            field.name: value
            for field in fields(AlignmentFacts)
            if (value := getattr(self.alignment, field.name)) != field.default
        }
        if "scores" in stored:
            stored["scores"] = [asdict(score) for score in self.alignment.scores]
        own, bp = ([*asdict(answers).values()] for answers in (self.own, self.bp))
        return {"seed": self.seed, "own": own, "bp": bp, "broken": self.broken, "alignment": _short(stored)}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> SeedResult:
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in stored["alignment"].items()
        }
        facts["scores"] = tuple(NullScore(**score) for score in facts.get("scores", ()))
        own, bp = Answers(*stored["own"]), Answers(*stored["bp"])
        return SeedResult(stored["seed"], own, bp, stored["broken"], AlignmentFacts(**facts))


def _short(value: Any) -> Any:
    """Numbers to six digits."""
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class GroupVerdict:
    """What the claims say of seeds that are judged together."""

    depth: Claim
    alignment: Claim
    headline: Outcome
    interval: tuple[float, float] | None
    """The interval of the margin."""


def judge_group(seeds: Sequence[SeedResult], majority_share: float, *, paired: bool) -> GroupVerdict:
    """Judge these seeds of one method as the only method of a table: Holm's correction then changes nothing.

    Without `paired` the samples of one seed are not paired, as where a user gives accuracies and `test_samples`.
    """
    own, bp = ([getattr(seed, name) for seed in seeds] for name in ("own", "bp"))
    correct: dict[str, Any] = {}
    if paired and len(seeds) == 1:
        (ours, theirs), (bp_ours, bp_theirs) = own[0].correct, bp[0].correct
        correct = {
            "correct": ours,
            "bp_correct": bp_ours,
            "frozen_correct": {METHOD_SHELL: theirs, BP_SHELL: bp_theirs},
        }
    evidence = Evidence.of(
        headline_acc=[answers.accuracies[0] for answers in own],
        frozen_baseline_acc={
            METHOD_SHELL: [answers.accuracies[1] for answers in own],
            BP_SHELL: [answers.accuracies[1] for answers in bp],
        },
        bp_acc=[answers.accuracies[0] for answers in bp],
        test_samples=own[0].samples,
        **correct,
    )
    broken = next((seed.broken for seed in seeds if seed.broken), "")
    facts = depth_facts(evidence, (), THRESHOLDS, not_finite=broken, majority_share=majority_share)
    depth = judge_depth(facts)
    alignment = alignment_of_seeds([judge_alignment(seed.alignment) for seed in seeds])
    headline = judge_headline({"depth": depth, "alignment": alignment})
    interval = None if facts.margin is None else facts.margin.interval
    return GroupVerdict(depth, alignment, headline.outcome, interval)
