"""The rule by which a figure of ours agrees with a published one; `RULE` states it on the page.

    |difference| <= 2 sqrt(s_published² + s_ours² + r²)

s are standard deviations over seeds; where the paper prints none, ours is used for both. r is the rounding error of the
printed digits. Quantities compared by their ratio (norms, growth, factors) are taken as log10 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from walkback_papers.published.parse_number import Printed

INTERVAL_WIDTH = 2.0
"""Half-width of the agreement interval in standard deviations."""
ROUGH_FACTOR = 2.0
"""Rounding tolerance, as a factor, of a norm or factor printed as `about` or with one digit."""
ROUGH_COSINE = 0.05
"""The largest rounding tolerance of a cosine: the protocol calls alignments below it `detectable, small`."""
_EPOCH_TOLERANCE = 1
"""Tolerance of the epoch of a first firing: papers do not say whether they count from 0 or from 1."""

AgreementOutcome = Literal["agrees", "differs"]
By = Literal["difference", "ratio", "epoch", "words", "count"]


@dataclass(frozen=True)
class FigureKind:
    """How figures of one kind are compared and formatted."""

    by: By
    spec: str = ""
    unit: str = ""
    times: float = 1.0
    """Factor from our unit to the unit in which a difference is shown."""
    rough: float = math.inf
    """The largest rounding tolerance."""


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
    f"A figure **agrees** where the absolute difference is at most {INTERVAL_WIDTH:g} √(s² published + s² ours + r²). "
    "s is the standard deviation over seeds (ours: ddof = 1; theirs as printed, ddof not stated); where none is "
    "printed, ours is used for both; r is the rounding of the printed digits (half a unit of the last, divided by √3). "
    "With three seeds on each side this is between the 95% t limits for equal spreads (1.6) and unequal ones (2.5).",
    "Norms, growth, nudging and factors are compared by their ratio: the same rule in log10, our mean over theirs. "
    f"A figure printed as “about” or with one digit has a rounding tolerance of a factor of {ROUGH_FACTOR:g}. The "
    f"rounding tolerance of a cosine is at most {ROUGH_COSINE:g}. The allowed difference follows in brackets.",
    "A printed bound must hold in every seed. For a printed range the difference is the distance to the range, without "
    "further spread or rounding. A first firing agrees where every seed's epoch is in the printed range, within "
    f"{_EPOCH_TOLERANCE} epoch; `never` must be never in every seed. "
    "Verdicts, answers, orders, counts and settings must be the same in every seed.",
)


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing one figure."""

    outcome: AgreementOutcome
    shown: str
    """The difference or ratio as text, with the allowed one in brackets."""


def compare_with_published(kind: str, printed: Printed, values: Sequence[float], draws: int = 1) -> Comparison:
    """Compare our values, one per seed, with a printed number. `draws`: number of draws that the printed ± is over."""
    figure_kind = FIGURE_KINDS[kind]
    if figure_kind.by == "epoch":
        return _compare_epochs(printed, values)
    if figure_kind.by == "count":
        same = all(value == printed.low for value in values)
        return Comparison("agrees" if same else "differs", f"{fmean(values) - printed.low:+g}")
    if figure_kind.by == "ratio":
        return _compare_ratio(printed, values)
    off = distance(fmean(values), printed.low, printed.high)
    digits = 1 if figure_kind.unit == "pp" or figure_kind.spec == "+.1f" else 3
    shown = f"{figure_kind.times * off:+z.{digits}f} {figure_kind.unit}".strip()
    if printed.bounds:
        return _compare_bound(printed, values, shown)
    theirs = _published_spread(printed, printed.spread)
    spread = None if theirs is None else theirs / math.sqrt(draws)
    rounding = 0.0 if printed.is_range else min(printed.half / math.sqrt(3), figure_kind.rough / INTERVAL_WIDTH)
    limit = published_tolerance(spread, _stdev(values), rounding)
    return Comparison(
        "agrees" if abs(off) <= limit else "differs", f"{shown} (±{figure_kind.times * limit:.{digits}f})"
    )


def published_tolerance(published: float | None, ours: float | None, rounding: float) -> float:
    """The largest difference that agrees; an unknown spread is replaced by the other one."""
    theirs = published if published is not None else ours
    mine = ours if ours is not None else published
    return INTERVAL_WIDTH * math.sqrt((theirs or 0.0) ** 2 + (mine or 0.0) ** 2 + rounding**2)


def distance(value: float, low: float, high: float) -> float:
    """Signed distance of a value to a range: 0 inside it, negative below it."""
    return value - high if value > high else value - low if value < low else 0.0


def _compare_ratio(printed: Printed, values: Sequence[float]) -> Comparison:
    """Compare in orders of magnitude; a value of the other sign, or zero, never agrees."""
    ours = fmean(values)
    if ours == 0 or printed.low == 0 or any(math.copysign(1, v) != math.copysign(1, printed.low) for v in values):
        return Comparison("differs", "zero, or of the other sign")
    sizes = [abs(value) for value in values]
    ends = sorted(math.log10(abs(end)) for end in (printed.low, printed.high))
    off = distance(math.log10(abs(ours)), *ends)
    shown = f"×{10**off:.2g}, {off:+z.2f} orders"
    if printed.bounds:
        return _compare_bound(printed, values, shown)
    theirs = _published_spread(
        printed, None if printed.spread is None else printed.spread / abs(printed.low) / math.log(10)
    )
    mine = _stdev([math.log10(size) for size in sizes]) if min(sizes) > 0 else None
    fine = printed.half / abs(printed.low) / math.log(10) / math.sqrt(3)
    rough = math.log10(ROUGH_FACTOR) / INTERVAL_WIDTH
    limit = published_tolerance(theirs, mine, 0.0 if printed.is_range else rough if printed.is_rough else fine)
    return Comparison("agrees" if abs(off) <= limit else "differs", f"{shown} (±{limit:.2f})")


def _published_spread(printed: Printed, spread: float | None) -> float | None:
    """The published spread; 0 for a printed range, which is a spread itself."""
    return 0.0 if printed.is_range else spread


def _compare_bound(printed: Printed, values: Sequence[float], shown: str) -> Comparison:
    """A printed bound must hold in every seed."""
    above = printed.bounds == "above"
    held = sum((value >= printed.low) if above else (value <= printed.low) for value in values)
    words = f"{shown}; {printed.bounds} it in {held} of {len(values)}"
    return Comparison("agrees" if held == len(values) else "differs", words)


def _compare_epochs(printed: Printed, values: Sequence[float]) -> Comparison:
    """Every seed's epoch must be in the printed range, within the tolerance."""
    off = [distance(value, printed.low, printed.high) for value in values]
    worst = max(off, key=abs)
    return Comparison(
        "agrees" if abs(worst) <= _EPOCH_TOLERANCE else "differs", f"{worst:+g} epochs at most" if worst else "0"
    )


def _stdev(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None
