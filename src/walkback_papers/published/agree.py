"""The rule by which a figure of ours agrees with a published one; `RULE` states it on the page.

The 95% interval of the difference, ours minus published, decides: inside the margin it agrees; without zero and
reaching outside the margin it differs; otherwise the runs are too noisy to tell. A wide interval never agrees.
Quantities compared by their ratio (norms, growth, factors) are taken as log10 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from walkback.judge.student_t import quantile
from walkback_papers.published.parse_number import Printed

LEVEL = 0.95
"""The level of the interval of a difference."""
PUBLISHED_SEEDS = 3
"""Seeds that a printed ± is over: the papers train three."""
MARGIN_PP, MARGIN_FACTOR, MARGIN_COSINE, MARGIN_LOSS, MARGIN_SCORE = 2.0, 2.0, 0.05, 0.05, 1.0
"""The largest difference that counts as agreement: percentage points, a factor, cosines, nats, standard deviations."""
_EPOCH_TOLERANCE = 1
"""Tolerance of the epoch of a first firing: papers do not say whether they count from 0 or from 1."""

AgreementOutcome = Literal["agrees", "differs", "too noisy to tell"]
By = Literal["difference", "ratio", "epoch", "words", "count"]
Interval = tuple[float, float]


@dataclass(frozen=True)
class FigureKind:
    """How figures of one kind are compared and formatted."""

    by: By
    spec: str = ""
    margin: float = 0.0
    """The largest difference that agrees, in our unit; of a ratio, in log10."""
    unit: str = ""
    times: float = 1.0
    """Factor from our unit to the unit in which a difference is shown."""


_ORDERS = math.log10(MARGIN_FACTOR)
FIGURE_KINDS: dict[str, FigureKind] = {
    "accuracy": FigureKind("difference", ".3f", MARGIN_PP / 100, "pp", 100),
    "share": FigureKind("difference", ".0%", MARGIN_PP / 100, "pp", 100),
    "margin": FigureKind("difference", "+.1f", MARGIN_PP, "pp"),
    "cosine": FigureKind("difference", "+.3f", MARGIN_COSINE),
    "rho": FigureKind("difference", "+.3f", MARGIN_COSINE),
    "loss": FigureKind("difference", "+.3f", MARGIN_LOSS),
    "score": FigureKind("difference", "+.1f", MARGIN_SCORE),
    "growth": FigureKind("ratio", ".3g", _ORDERS),
    "norm_h": FigureKind("ratio", ".2e", _ORDERS),
    "norm_g": FigureKind("ratio", ".2e", _ORDERS),
    "factor": FigureKind("ratio", ".3g", _ORDERS),
    "nudging": FigureKind("ratio", "+.2e", _ORDERS),
    "epoch": FigureKind("epoch", ".0f"),
    "count": FigureKind("count", ".0f"),
    "verdict": FigureKind("words"),
    "answer": FigureKind("words"),
    "order": FigureKind("words"),
    "setting": FigureKind("words"),
}
RULE = (
    f"A figure **agrees** where the {LEVEL:.0%} interval of the difference, ours minus published, lies inside the "
    f"margin: {MARGIN_PP:g} pp for accuracies, {MARGIN_COSINE:g} for cosines and correlations, {MARGIN_LOSS:g} nats "
    f"for losses, {MARGIN_SCORE:g} for z scores. It **differs** where the interval excludes 0 and reaches outside the "
    "margin. Otherwise our runs are **too noisy to tell**. A wide interval never agrees.",
    "The interval is a t interval over our seeds. A published value is taken as exact, unless a ± is printed: then it "
    f"counts as a standard deviation over {PUBLISHED_SEEDS} seeds (or over the draws it is printed for), with Welch's "
    "degrees of freedom. The interval follows the difference in brackets.",
    "Norms, growth, nudging and factors are compared by their ratio: the same rule in log10, our geometric mean over "
    f"theirs, with a margin of a factor of {MARGIN_FACTOR:g}. Another sign differs; seeds of both signs are too noisy.",
    "A printed bound must hold in every seed. For a printed range the difference is the distance to the range. A first "
    f"firing agrees where every seed's epoch is in the printed range, within {_EPOCH_TOLERANCE} epoch; `never` must be "
    "never in every seed. Verdicts, answers, orders, counts and settings must be the same in every seed.",
)


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing one figure."""

    outcome: AgreementOutcome
    shown: str
    """The difference or ratio as text, with its interval in brackets."""


def compare_with_published(kind: str, printed: Printed, values: Sequence[float], draws: int = 1) -> Comparison:
    """Compare our values, one per seed, with a printed number. `draws`: number of draws that the printed ± is over."""
    figure_kind = FIGURE_KINDS[kind]
    if figure_kind.by == "epoch":
        return _compare_epochs(printed, values)
    if figure_kind.by == "count":
        same = all(value == printed.low for value in values)
        return Comparison("agrees" if same else "differs", f"{fmean(values) - printed.low:+g}")
    count = draws if draws > 1 else PUBLISHED_SEEDS
    if figure_kind.by == "ratio":
        return _compare_ratio(figure_kind, printed, values, count)
    off = distance(fmean(values), printed.low, printed.high)
    digits = 1 if figure_kind.unit == "pp" or figure_kind.spec == "+.1f" else 3

    def text(value: float) -> str:
        return f"{figure_kind.times * value:+z.{digits}f}"

    shown = f"{text(off)} {figure_kind.unit}".strip()
    if printed.bounds:
        return _compare_bound(printed, values, shown)
    found = difference_interval(values, (printed.low, printed.high), printed.spread, count)
    ends = "no interval" if found is None else f"[{text(found[0])}, {text(found[1])}]"
    return Comparison(agreement(found, figure_kind.margin), f"{shown} {ends}")


_ROUNDING = 1e-9
"""A difference of logarithms that equals the margin may exceed it by its rounding."""


def agreement(interval: Interval | None, margin: float) -> AgreementOutcome:
    """The outcome of a difference that is known up to an interval; None where there is one seed only."""
    if interval is None:
        return "too noisy to tell"
    low, high = interval
    if -margin - _ROUNDING <= low and high <= margin + _ROUNDING:
        return "agrees"
    return "differs" if low > 0 or high < 0 else "too noisy to tell"


def difference_interval(
    ours: Sequence[float], published: Interval, spread: float | None = None, count: int = PUBLISHED_SEEDS
) -> Interval | None:
    """Welch's interval of our mean minus a published value or range; None for one seed.

    `spread` is the published standard deviation over `count` seeds; without it the value is exact.
    """
    if len(ours) < 2:
        return None
    mean = fmean(ours)
    mine, theirs = stdev(ours) ** 2 / len(ours), (spread or 0.0) ** 2 / count
    half = 0.0
    if mine + theirs > 0:
        freedom = (mine + theirs) ** 2 / (mine**2 / (len(ours) - 1) + theirs**2 / (count - 1))
        half = quantile(0.5 + LEVEL / 2, freedom) * math.sqrt(mine + theirs)
    return distance(mean - half, *published), distance(mean + half, *published)


def distance(value: float, low: float, high: float) -> float:
    """Signed distance of a value to a range: 0 inside it, negative below it."""
    return value - high if value > high else value - low if value < low else 0.0


def _compare_ratio(figure_kind: FigureKind, printed: Printed, values: Sequence[float], count: int) -> Comparison:
    """Compare in orders of magnitude; a value of the other sign, or zero, never agrees."""
    signs = {math.copysign(1, value) if value else 0 for value in values}
    theirs = math.copysign(1, printed.low) if printed.low else 0
    if signs != {theirs} or not theirs:
        mixed = bool(theirs) and theirs in signs
        return Comparison("too noisy to tell" if mixed else "differs", "zero, or of the other sign")
    sizes = [math.log10(abs(value)) for value in values]
    low, high = sorted(math.log10(abs(end)) for end in (printed.low, printed.high))
    off = distance(fmean(sizes), low, high)
    shown = f"×{10**off:.2g}, {off:+z.2f} orders"
    if printed.bounds:
        return _compare_bound(printed, values, shown)
    spread = None if printed.spread is None else printed.spread / abs(printed.low) / math.log(10)
    found = difference_interval(sizes, (low, high), spread, count)
    ends = "no interval" if found is None else f"[{found[0]:+z.2f}, {found[1]:+z.2f}]"
    return Comparison(agreement(found, figure_kind.margin), f"{shown} {ends}")


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
