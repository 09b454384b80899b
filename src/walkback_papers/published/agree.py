"""When a figure of ours agrees with a published one: one rule, stated on the page by `RULE`.

    |difference| <= 2 sqrt(s_published² + s_ours² + r²)

s are standard deviations over seeds; where the paper prints none, ours stands for both. r is what rounding of the
printed digits may have done. What is compared by its ratio (norms, growth, factors) is taken as log10 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from walkback_papers.published.parse_number import Printed

INTERVAL_WIDTH = 2.0
ROUGH_FACTOR = 2.0
"""How far a norm or factor may be off that is printed as `about` or with one digit, by that alone."""
ROUGH_COSINE = 0.05
"""The same of a cosine: below it an alignment reads as `detectable, small` in the protocol."""
_LATE = 1
"""Epochs that a first firing may be off: papers do not say whether they count from 0 or from 1."""

AgreementOutcome = Literal["agrees", "differs"]
By = Literal["difference", "ratio", "epoch", "words", "count"]


@dataclass(frozen=True)
class FigureKind:
    """How figures of one kind are compared and shown."""

    by: By
    spec: str = ""
    unit: str = ""
    times: float = 1.0
    """From our unit to the unit that a difference is shown in."""
    rough: float = math.inf
    """The most that rounding may excuse."""


FIGURE_KINDS: dict[str, FigureKind] = {
    "accuracy": FigureKind("difference", ".3f", "pp", 100),
    "share": FigureKind("difference", ".0%", "pp", 100),
    "margin": FigureKind("difference", "+.1f", "pp"),
    "cosine": FigureKind("difference", "+.3f", rough=ROUGH_COSINE),
    "rho": FigureKind("difference", "+.3f", rough=ROUGH_COSINE),
    "loss": FigureKind("difference", "+.3f"),
    "score": FigureKind("difference", "+.1f"),
    "growth": FigureKind("ratio", ".3g"),
    "norm_h": FigureKind("ratio", ".2e"),
    "norm_g": FigureKind("ratio", ".2e"),
    "factor": FigureKind("ratio", ".3g"),
    "nudging": FigureKind("ratio", "+.2e"),
    "epoch": FigureKind("epoch", ".0f"),
    "count": FigureKind("count", ".0f"),
    "verdict": FigureKind("words"),
    "answer": FigureKind("words"),
    "order": FigureKind("words"),
    "setting": FigureKind("words"),
}
RULE = (
    f"A figure **agrees** where the difference is at most {INTERVAL_WIDTH:g} √(s² published + s² ours + r²), "
    f"either way. s is "
    "the standard deviation over seeds (ours: ddof = 1; theirs as printed, ddof not stated); where none is printed, "
    "ours stands for both; r is the rounding of the printed digits (half a unit of the last, divided by √3). With "
    "three seeds on each side this lies between the 95% t limits for equal spreads (1.6) and for unequal ones (2.5).",
    "Norms, growth, nudging and factors are compared by their ratio: the same rule in log10, our mean over theirs. "
    f"What is printed as “about” or with one digit may be off by a factor of {ROUGH_FACTOR:g} for that alone. Rounding "
    f"excuses at most {ROUGH_COSINE:g} of a cosine. What a difference may be stands behind it in brackets.",
    "A printed bound must hold in every seed. Of a printed range the distance from it counts, and it has "
    "no other spread or rounding. A first firing agrees "
    f"where every seed's epoch lies in the printed range, give or take {_LATE}; `never` must be never in every seed. "
    "Verdicts, answers, orders, counts and settings must be the same in every seed.",
)


@dataclass(frozen=True)
class Comparison:
    outcome: AgreementOutcome
    shown: str
    """The difference or ratio in words, and in brackets how large it may be."""


def compare_with_published(kind: str, printed: Printed, values: Sequence[float], draws: int = 1) -> Comparison:
    """Our values, one for each seed, beside a printed number. `draws`: of how many the printed ± is, where of draws."""
    how = FIGURE_KINDS[kind]
    if how.by == "epoch":
        return _epochs(printed, values)
    if how.by == "count":
        same = all(value == printed.low for value in values)
        return Comparison("agrees" if same else "differs", f"{fmean(values) - printed.low:+g}")
    if how.by == "ratio":
        return _ratio(printed, values)
    off = distance(fmean(values), printed.low, printed.high)
    digits = 1 if how.unit == "pp" or how.spec == "+.1f" else 3
    shown = f"{how.times * off:+z.{digits}f} {how.unit}".strip()
    if printed.bounds:
        return _bound(printed, values, shown)
    theirs = _theirs(printed, printed.spread)
    spread = None if theirs is None else theirs / math.sqrt(draws)
    rounding = 0.0 if printed.is_range else min(printed.half / math.sqrt(3), how.rough / INTERVAL_WIDTH)
    limit = published_tolerance(spread, _spread(values), rounding)
    return Comparison("agrees" if abs(off) <= limit else "differs", f"{shown} (±{how.times * limit:.{digits}f})")


def published_tolerance(published: float | None, ours: float | None, rounding: float) -> float:
    """How large a difference may be; an unknown spread is taken to be the other one."""
    theirs = published if published is not None else ours
    mine = ours if ours is not None else published
    return INTERVAL_WIDTH * math.sqrt((theirs or 0.0) ** 2 + (mine or 0.0) ** 2 + rounding**2)


def distance(value: float, low: float, high: float) -> float:
    """How far a value lies outside a range: 0 inside it, negative below it."""
    return value - high if value > high else value - low if value < low else 0.0


def _ratio(printed: Printed, values: Sequence[float]) -> Comparison:
    """In orders of magnitude; a figure of the other sign, or zero, never agrees."""
    ours = fmean(values)
    if ours == 0 or printed.low == 0 or any(math.copysign(1, v) != math.copysign(1, printed.low) for v in values):
        return Comparison("differs", "zero, or of the other sign")
    sizes = [abs(value) for value in values]
    ends = sorted(math.log10(abs(end)) for end in (printed.low, printed.high))
    off = distance(math.log10(abs(ours)), *ends)
    shown = f"×{10**off:.2g}, {off:+z.2f} orders"
    if printed.bounds:
        return _bound(printed, values, shown)
    theirs = _theirs(printed, None if printed.spread is None else printed.spread / abs(printed.low) / math.log(10))
    mine = _spread([math.log10(size) for size in sizes]) if min(sizes) > 0 else None
    fine = printed.half / abs(printed.low) / math.log(10) / math.sqrt(3)
    rough = math.log10(ROUGH_FACTOR) / INTERVAL_WIDTH
    limit = published_tolerance(theirs, mine, 0.0 if printed.is_range else rough if printed.is_rough else fine)
    return Comparison("agrees" if abs(off) <= limit else "differs", f"{shown} (±{limit:.2f})")


def _theirs(printed: Printed, spread: float | None) -> float | None:
    """A printed range is their spread already."""
    return 0.0 if printed.is_range else spread


def _bound(printed: Printed, values: Sequence[float], shown: str) -> Comparison:
    above = printed.bounds == "above"
    held = sum((value >= printed.low) if above else (value <= printed.low) for value in values)
    words = f"{shown}; {printed.bounds} it in {held} of {len(values)}"
    return Comparison("agrees" if held == len(values) else "differs", words)


def _epochs(printed: Printed, values: Sequence[float]) -> Comparison:
    off = [distance(value, printed.low, printed.high) for value in values]
    worst = max(off, key=abs)
    return Comparison("agrees" if abs(worst) <= _LATE else "differs", f"{worst:+g} epochs at most" if worst else "0")


def _spread(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None
