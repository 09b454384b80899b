"""The quantities of each block: alignment of the credit that trains it, of its parameter gradients, and what it does
for the predictions. The alignment claim uses the first two; lesions and probes decide nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from walkback.core.measurements import NULL_GROUPS, NULL_OVER_GROUPS, Array, Measurements
from walkback.judge import student_t
from walkback.judge.card_part import CardPart, NonNegative
from walkback.judge.layers import fresh_of, is_exact_block, score
from walkback.judge.number import Number
from walkback.judge.reference import Direction, direction_of
from walkback.judge.statistics import holm, paired_score_margin
from walkback.judge.thresholds import DiagnosticThresholds

NO_UPDATE = "not made: give update="
NO_WIDTH = "the null has no width"


ALIGNMENT_COLUMNS = (
    ("used cos", "used_cos", "+.3f"),
    ("z", "used_z", ".1f"),
    ("ratio", "credit_ratio", ".2g"),
    ("update cos", "update_cos", "+.3f"),
    ("z(update)", "update_z", ".1f"),
)
PREDICTION_COLUMNS = (
    ("skipped", "accuracy_skipped", ".3f"),
    ("reset", "accuracy_reset", ".3f"),
    ("cut", "accuracy_cut", ".3f"),
    ("probe", "probe", ".3f"),
    ("untrained", "probe_initial", ".3f"),
)
BLOCK_COLUMNS = (*ALIGNMENT_COLUMNS, *PREDICTION_COLUMNS)
"""The columns of the table of blocks: head, field, format."""


@dataclass(frozen=True)
class Block(CardPart):
    """Block l, which turns h_l into h_l+1."""

    index: NonNegative
    used_cos: Number
    """Mean cosine of the credit that trains the block with the gradient at its output."""
    used_z: Number
    """The same in standard deviations of random rotations."""
    used_p: Number
    """One-sided p-value of that cosine under its nulls: random rotations and, where it was drawn, fresh feedback."""
    is_exact: bool
    """Whether that credit is the gradient by construction."""
    credit_ratio: Number
    """Median norm of that credit over the norm of that gradient."""
    update_cos: Number
    """Mean cosine of the block's parameter gradient with that of the mean loss, over groups."""
    update_z: Number
    """The same in standard deviations of rotated or freshly drawn credits."""
    update_null_std: Number
    """That standard deviation."""
    update_null_draws: NonNegative
    """From how many draws it is estimated; 0 where it is exact."""
    accuracy_skipped: Number
    """Accuracy with this block skipped, and with it reset to its initial parameters."""
    accuracy_reset: Number
    matters: bool | None
    """Whether skipping it costs accuracy: the lower bound of the loss is above 0, Holm over blocks."""
    accuracy_cut: Number
    """Accuracy of the network cut off after this block."""
    probe: Number
    """Accuracy of a linear probe after this block, and of the same on the untrained network."""
    probe_initial: Number

    JSON_OPTIONAL = ("update_null_draws",)
    """Cards written before version 0.13 do not have it."""
    JSON_LATER = ("used_p", "update_null_std", *JSON_OPTIONAL)


def blocks_of(m: Measurements, t: DiagnosticThresholds) -> tuple[Block, ...]:
    """One `Block` for each block; empty if nothing about blocks was measured."""
    names = ("used_cos", "update_cos", "lesion_skip", "probe_correct")
    if all(m.get(name) is None for name in names):
        return ()
    matter = _matter(m, t)
    return tuple(_block(m, index, matter.get(index), t) for index in range(m.depth))


def _block(m: Measurements, index: int, matters: bool | None, t: DiagnosticThresholds) -> Block:
    used = _used(m, index, direction_of(m, index + 1, t))
    stds = m.get("null_used_std")
    used_z = score(used, None if stds is None else float(stds[index]))
    update_z, update_null_std, update_null_draws = _update_null(m, index)
    return Block(
        index=index,
        used_cos=used,
        used_z=used_z,
        used_p=_used_p(m, index, used, used_z),
        is_exact=is_exact_block(m, index),
        credit_ratio=_middle(m.get("credit_ratio"), index),
        update_cos=_mean(m.get("update_cos"), index, NO_UPDATE),
        update_z=update_z,
        update_null_std=update_null_std,
        update_null_draws=update_null_draws,
        accuracy_skipped=_mean(m.get("lesion_skip"), index, "no lesion was measured"),
        accuracy_reset=_mean(m.get("lesion_reset"), index, "the initial parameters are not known"),
        matters=matters,
        accuracy_cut=_mean(m.get("lesion_cut"), index + 1, "no lesion was measured"),
        probe=_mean(m.get("probe_correct"), index + 1, "no training samples were given"),
        probe_initial=_mean(m.get("probe_initial"), index + 1, "the initial parameters are not known"),
    )


def _used(m: Measurements, index: int, direction: Direction) -> Number:
    if direction.status in ("invalid", "noise"):
        return Number.invalid(direction.reason)
    return _mean(m.get("used_cos"), index, "no credit was measured")


def _used_p(m: Measurements, index: int, used: Number, used_z: Number) -> Number:
    """The larger of the p-values over the two nulls: the credit must exceed both."""
    if not used_z.ok:
        return used_z
    p = student_t.normal_upper(used_z.known)
    draws = m.get("null_used_fresh")
    if draws is not None:
        fresh = fresh_of(used, draws, [index])
        if fresh is None or not fresh.z.ok:
            return Number.invalid("fresh feedback gives no null here")
        p = max(p, student_t.upper(fresh.z.known, fresh.draws - 1))
    return Number.of(p)


def _mean(values: Array | None, index: int, missing: str) -> Number:
    """The mean over known samples or groups; those that are not known are counted."""
    if values is None:
        return Number.missing(missing)
    known = values[index][np.isfinite(values[index])]
    if known.size == 0:
        return Number.missing(missing if missing == NO_UPDATE else "not defined here")
    left_out = values.shape[1] - known.size
    return Number.of(float(known.mean()), f"{left_out} of {values.shape[1]} left out" if left_out else "")


def _middle(values: Array | None, index: int) -> Number:
    if values is None:
        return Number.missing("no credit was measured")
    known = values[index][np.isfinite(values[index])]
    if known.size == 0:
        return Number.invalid("no sample has a gradient there")
    low, high = np.quantile(known, (0.05, 0.95))
    return Number.of(float(np.median(known)), f"90% of samples from {low:.3g} to {high:.3g}")


def _update_null(m: Measurements, index: int) -> tuple[Number, Number, int]:
    """z of update_cos over its null, the null's spread, and the draws that it is estimated from; means over groups.

    Draws are compared with the mean over the groups that they were drawn in: measurements of 0.10 have the null of the
    first group only, those of 0.12 of all groups.
    """
    made, null, stds = (m.get(name) for name in ("update_cos", "null_update", "null_update_std"))
    if made is None or not np.isfinite(made[index]).any():
        return Number.missing(NO_UPDATE), Number.missing(NO_UPDATE), 0
    if stds is not None:
        std, cosine = float(stds[index]), Number.of(float(np.nanmean(made[index])))
        return score(cosine, std), Number.of(std) if np.isfinite(std) else Number.invalid(NO_WIDTH), 0
    if null is None:
        return (*(Number.missing("the null was not measured"),) * 2, 0)
    draws = null[index][np.isfinite(null[index])]
    if draws.size < 2:
        return (*(Number.invalid(NO_WIDTH),) * 2, 0)
    std = float(draws.std(ddof=1)) * float(np.sqrt(1 + 1 / draws.size))
    groups = len(made[index]) if m.facts.get(NULL_OVER_GROUPS) else m.facts.get(NULL_GROUPS, 1)
    excess = float(np.nanmean(made[index][:groups])) - float(draws.mean())
    return score(Number.of(excess), std), Number.of(std), int(draws.size)


def _matter(m: Measurements, t: DiagnosticThresholds) -> dict[int, bool]:
    """For each block that can be skipped, whether skipping it alone costs accuracy."""
    correct, skipped = m.get("correct"), m.get("lesion_skip")
    if correct is None or skipped is None:
        return {}
    whole = tuple(bool(value) for value in correct)
    margins = {
        index: paired_score_margin(whole, tuple(bool(value) for value in row), t.confidence)
        for index, row in enumerate(skipped)
        if np.isfinite(row).all()
    }
    p = holm({str(index): margin.p_value(0.0) or 0.0 for index, margin in margins.items()})
    return {index: margin.mean > 0 and p[str(index)] < 1 - t.confidence for index, margin in margins.items()}
