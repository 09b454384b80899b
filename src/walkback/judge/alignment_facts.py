"""The facts of the alignment claim: what the measurements of one seed show of its credit and of its updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from walkback.judge import student_t
from walkback.judge.blocks import Block
from walkback.judge.layers import Layer
from walkback.judge.quantities import Quantities
from walkback.judge.reference import Direction
from walkback.judge.statistics import holm
from walkback.judge.thresholds import DiagnosticThresholds

MIN_FRESH_DRAWS = 8
"""Draws of fresh feedback under which their spread is too uncertain for a verdict."""
MAX_NOT_FINITE = 0.01
"""Share of samples without a finite gradient or credit above which cosines are invalid."""
REMEASURE = "measured by an earlier version; measure the run again"


def fresh_critical(draws: int, null_z: float) -> float:
    """The score over K fresh draws that is as rare as `null_z` standard deviations of a normal distribution.

    The spread is estimated from the draws, so the score is Student's t with K - 1 degrees of freedom: 3.45 for 20 draws
    where the normal distribution has 3.
    """
    below = 1 - student_t.normal_two_sided(null_z) / 2
    return student_t.quantile(below, draws - 1) if below < 1 else math.inf


@dataclass(frozen=True)
class NullScore:
    """A cosine's distance from its null."""

    null: str
    z: float
    critical: float
    highest_cosine: float
    """The largest cosine that these measurements do not exclude: the measured one plus `critical` null widths."""


@dataclass(frozen=True)
class AlignmentFacts:
    """What one measured seed shows of its credit. Sentences are empty where there is nothing to say."""

    frozen: bool = False
    has_credit: bool = True
    has_update: bool = True
    invalid: str = ""
    """Why the reference or the credit is invalid."""
    all_exact: bool = False
    all_signs: bool = False
    noise: str = ""
    unsure: str = ""
    """Which direction is degraded, or what was not measured."""
    cosine: float = 0.0
    """The mean cosine that the nulls are compared with."""
    scores: tuple[NullScore, ...] = ()
    null_problem: str = ""
    """Why there is no score."""
    skip_path: str = ""
    """What is left without the gradient at h_L, if that is not above its null."""
    failing_blocks: tuple[int, ...] = ()
    """Blocks whose credit is not above its null, and whose cosine is shown to be small."""
    failing_updates: tuple[int, ...] = ()
    unsure_blocks: tuple[int, ...] = ()
    """Blocks whose credit is not above its null, but whose cosine may be `small` or more."""
    unsure_updates: tuple[int, ...] = ()
    update_note: str = ""
    small: float = 0.05
    """Cosines under this are called small, and a cosine that may reach it is not called absent."""

    @property
    def scores_text(self) -> str:
        parts = [f"z = {score.z:.1f} against {score.null}" for score in self.scores]
        return ", ".join([f"mean cosine {self.cosine:+.3f}", *parts])


def alignment_facts(q: Quantities, t: DiagnosticThresholds, frozen: bool = False, missing: str = "") -> AlignmentFacts:
    """What the measurements of one seed show; `missing` names evidence that is missing."""
    has_update = any(block.update_cos.ok for block in q.blocks)
    facts = AlignmentFacts(frozen=frozen, has_credit=q.has_credit, has_update=has_update, small=t.small_alignment)
    if missing:
        return replace(facts, has_credit=True, unsure=missing)
    if not q.has_credit:
        return _update_facts(facts, q, t)
    judged = _judged_layers(q)
    directions = {layer.index: layer.direction for layer in judged}
    credit_directions = {layer.index: layer.credit.direction for layer in judged if layer.credit is not None}
    cosine, scores, problem = _scores(q, t)
    below, unmeasured = _blocks_below(q.blocks, t)
    failing_blocks, unsure_blocks = _by_absence(below, lambda block: _highest_credit(block, t.null_z), t)
    failing_updates, unsure_updates = _updates_below(q.blocks, t)
    return replace(
        facts,
        invalid=_with_status(directions, "reference", "invalid") or _not_finite(q),
        all_exact=_all_exact(q),
        all_signs=bool(judged) and all(_label(layer) in ("signs", "exact") for layer in judged),
        noise=_with_status(directions, "reference", "noise") or _with_status(credit_directions, "credit", "noise"),
        # A credit without a replay is accepted; a reference must have been replayed.
        unsure=_with_status(directions, "reference", "degraded", "missing")
        or _with_status(credit_directions, "credit", "degraded")
        or unmeasured,
        cosine=cosine,
        scores=scores,
        null_problem=problem,
        skip_path=_skip_path(q, t),
        failing_blocks=failing_blocks,
        failing_updates=failing_updates,
        unsure_blocks=unsure_blocks,
        unsure_updates=unsure_updates,
        update_note="" if has_update else "; the update was not measured (give update=)",
    )


def _update_facts(facts: AlignmentFacts, q: Quantities, t: DiagnosticThresholds) -> AlignmentFacts:
    """The facts where there is an update but no credit: only the updates of the blocks can be judged."""
    if not facts.has_update:
        return facts
    measured = [block for block in q.blocks if block.update_cos.ok]
    scored = [block for block in measured if block.update_z.ok]
    directions = {layer.index: layer.direction for layer in q.layers[1:]}
    failing, unsure = _updates_below(q.blocks, t)
    return replace(
        facts,
        invalid=_with_status(directions, "reference", "invalid") or _not_finite(q),
        noise=_with_status(directions, "reference", "noise"),
        unsure=_with_status(directions, "reference", "degraded", "missing"),
        cosine=sum(block.update_cos.known for block in measured) / len(measured),
        scores=tuple(_update_score(block, t) for block in scored),
        null_problem="" if len(scored) == len(measured) else "the update has no null: give credit= or fresh=",
        failing_updates=failing,
        unsure_updates=unsure,
    )


def _update_score(block: Block, t: DiagnosticThresholds) -> NullScore:
    critical, z = _update_critical(block, t), block.update_z.known
    return NullScore(f"rotated credit, update of block {block.index}", z, critical, _highest_update(block, critical))


def _highest_credit(block: Block, critical: float) -> float:
    """The largest cosine of the credit that is not excluded: the measured one plus `critical` null widths."""
    cosine, z = block.used_cos.known, block.used_z.known
    return cosine + critical * abs(cosine / z) if z else 1.0


def _highest_update(block: Block, critical: float) -> float:
    """The same of the update: its distance from the mean of the null's draws plus `critical` widths; without a null,
    the measured cosine. A card that does not have the width excludes nothing."""
    if not block.update_z.ok:
        return block.update_cos.known
    std = block.update_null_std
    return (block.update_z.known + critical) * std.known if std.ok else 1.0


def _update_critical(block: Block, t: DiagnosticThresholds) -> float:
    return fresh_critical(block.update_null_draws, t.null_z) if block.update_null_draws else t.null_z


def _judged_layers(q: Quantities) -> list[Layer]:
    """The states whose reference or credit the claim depends on: deep ones, and outputs of blocks that are not
    exact."""
    outputs = {block.index + 1 for block in q.blocks if not block.is_exact}
    return [layer for layer in q.layers if layer.index in outputs | set(q.aggregates.deep_layers)]


def _label(layer: Layer) -> str:
    return "none" if layer.credit is None else layer.credit.label


def _all_exact(q: Quantities) -> bool:
    if q.blocks:
        return all(block.is_exact for block in q.blocks)
    return all(_label(layer) == "exact" for layer in q.layers)


def _with_status(directions: Mapping[int, Direction], what: str, *statuses: str) -> str:
    """A sentence with the layers whose direction has one of these statuses; empty if there are none."""
    found = {index: direction for index, direction in directions.items() if direction.status in statuses}
    if not found:
        return ""
    first = next(iter(found.values()))
    words = {"invalid": "INVALID", "noise": "noise"}.get(first.status, "not valid")
    return f"the {what} is {words} at layer {', '.join(map(str, found))}: {first.reason}"


def _not_finite(q: Quantities) -> str:
    if q.not_finite_share <= MAX_NOT_FINITE:
        return ""
    return f"{q.not_finite_share:.1%} of the samples have a gradient or a credit that is not finite"


def _scores(q: Quantities, t: DiagnosticThresholds) -> tuple[float, tuple[NullScore, ...], str]:
    """The deciding cosine, its scores, and why there are none."""
    a = q.aggregates
    fresh = a.deep_mean_fresh
    # Without a judged state every credit is exact, but not where it is used: the mean over blocks decides.
    cosine, width = (a.deep_mean, a.deep_mean_null_std) if a.deep_layers else (a.used_mean, a.used_mean_null_std)
    if not cosine.ok:
        return 0.0, (), cosine.reason
    if width is None:
        return cosine.known, (), "the null was not measured"
    scores = [_null_score("random rotations", cosine.known, width, t.null_z)]
    if fresh is not None and a.deep_layers:
        if fresh.draws < MIN_FRESH_DRAWS:
            few = f"{fresh.draws} draws of fresh feedback are too few: expected at least {MIN_FRESH_DRAWS}"
            return cosine.known, (), few
        width = fresh.std * (1 + 1 / fresh.draws) ** 0.5
        critical = fresh_critical(fresh.draws, t.null_z)
        scores.append(_null_score("fresh feedback", cosine.known - fresh.mean, width, critical))
    if any(score is None for score in scores):
        return cosine.known, (), "the null has no width"
    return cosine.known, tuple(score for score in scores if score is not None), ""


def _null_score(null: str, distance: float, width: float, critical: float) -> NullScore | None:
    """The score of a cosine at this distance from its null's mean; None if the null has no width."""
    if not (math.isfinite(width) and width > 0):
        return None
    return NullScore(null, distance / width, critical, distance + critical * width)


def _skip_path(q: Quantities, t: DiagnosticThresholds) -> str:
    """What is left without the gradient at h_L, where it is not above its null; empty where it is."""
    left = q.aggregates.partial_mean_z
    if left is None or (left.ok and left.known >= t.null_z):
        return ""
    return f"without the gradient at h_L z = {left:.1f}" if left.ok else left.reason


def _blocks_below(blocks: Sequence[Block], t: DiagnosticThresholds) -> tuple[list[Block], str]:
    """Blocks whose own credit is not above its null (Holm over blocks); and why that cannot be said."""
    judged = [block for block in blocks if not block.is_exact]
    bad = next((block for block in judged if not block.used_p.ok), None)
    if not blocks:
        return [], f"the credit that trains each block was not {REMEASURE}"
    if bad is not None:
        return [], f"the credit that trains block {bad.index} has no null: {bad.used_p.reason}"
    level = student_t.normal_two_sided(t.null_z) / 2
    adjusted = holm({str(block.index): block.used_p.known for block in judged})
    return [block for block in judged if adjusted[str(block.index)] > level], ""


def _updates_below(blocks: Sequence[Block], t: DiagnosticThresholds) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks whose update is not above its null: shown to be small, and not. All must be above it, so no correction for
    their number is needed."""
    below = []
    for block in blocks:
        if block.is_exact or not block.update_cos.ok:
            continue
        above = block.update_z.known >= _update_critical(block, t) if block.update_z.ok else block.update_cos.known > 0
        below += [] if above else [block]
    return _by_absence(below, lambda block: _highest_update(block, _update_critical(block, t)), t)


def _by_absence(
    below: Sequence[Block], highest: Callable[[Block], float], t: DiagnosticThresholds
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks where a cosine worth speaking of is excluded, and the others: absence needs evidence too."""
    absent = tuple(block.index for block in below if highest(block) < t.small_alignment)
    return absent, tuple(block.index for block in below if block.index not in absent)
