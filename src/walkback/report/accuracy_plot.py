"""The plot of a method's accuracy (or loss) beside those of its frozen baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from markupsafe import Markup

from walkback.judge.statistics import NATS, exact_interval, mean_interval
from walkback.report.cells import counted
from walkback.report.sections import Card
from walkback.report.wide_svg import WIDE_HEIGHT, wide_line, wide_svg, wide_words

BASELINES = {"method_shell": "blocks frozen, rest by the method", "unnamed": "frozen baseline of unknown kind"}
"""The frozen baselines that decide, by their stored name."""
_LANES = {"own": 8.0, "frozen": 20.0, "bp frozen": 32.0}
"""The heights of the three marks of the plot of accuracies."""


@dataclass(frozen=True)
class Span:
    """A range of values that a plot shows, placed between 3% and 97% of its width."""

    low: float
    high: float

    def x(self, value: float) -> str:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{3 + 94 * share:.2f}%"

    def ticks(self, percent: bool) -> list[tuple[str, str]]:
        """Positions and labels of round values."""
        span = self.high - self.low
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 1e9) if span / step <= 5)
        values = [step * k for k in range(int(np.ceil(self.low / step)), int(np.floor(self.high / step)) + 1)]
        return [(self.x(value), f"{100 * value:.0f} %" if percent else f"{value:g}") for value in values]


@dataclass(frozen=True)
class AccuracyMark:
    """A mean over seeds with its interval, where there is one."""

    lane: str
    mean: float
    interval: tuple[float, float] | None
    words: str

    def text(self, percent: bool) -> str:
        ends = (
            ""
            if self.interval is None
            else f" [{_form(self.interval[0], percent)}, {_form(self.interval[1], percent)}]"
        )
        return f"{self.words}: {_form(self.mean, percent)}{ends}"


def _form(value: float, percent: bool) -> str:
    return f"{100 * value:.1f} %" if percent else f"{value:.3f}"


def marks_of(card: Card) -> list[AccuracyMark]:
    """Accuracy (or loss) of a method and of its frozen baselines; every seed's card has all seeds."""
    claim, confidence = card["claim"], card["statistics"]["confidence"]
    source = claim.get("losses")
    own, frozen = (source["headline"], source["frozen"]) if source else (claim["headline_acc"], claim["frozen"])
    given = [("own", own, "loss" if source else "accuracy")]
    given += [("frozen", frozen[name], words) for name, words in BASELINES.items() if frozen.get(name)]
    given += [("bp frozen", frozen["bp_shell"], "blocks frozen, rest by backprop")] if frozen.get("bp_shell") else []
    size = None if source else claim.get("test_samples")
    return [
        AccuracyMark(lane, fmean(values), _interval(values, size, confidence), words)
        for lane, values, words in given
        if values
    ]


def _interval(values: Sequence[float], samples: int | None, confidence: float) -> tuple[float, float] | None:
    """Over seeds; of one seed over the test samples, if their number is known."""
    if len(values) > 1:
        return mean_interval(np.asarray(values, dtype=np.float64), confidence)
    return None if samples is None else exact_interval(round(values[0] * samples), samples, confidence)


def span_of(marks: Iterable[AccuracyMark]) -> Span:
    """A range around all means; of longer intervals only a part is shown."""
    means = [mark.mean for mark in marks] or [0.0, 1.0]
    width = max(max(means) - min(means), 0.02)
    return Span(min(means) - 0.08 * width, max(means) + 0.08 * width)


def accuracy_plot(
    marks: Sequence[AccuracyMark], span: Span, ticks: Sequence[tuple[str, str]], needed: float | None
) -> Markup:
    """The marks of one method: a dot, and an open dot and a diamond for its two frozen baselines; a dashed line at
    `needed`."""
    parts = [wide_line(x, 0, x, WIDE_HEIGHT, "grid") for x, _ in ticks]
    for mark in marks:
        y = _LANES[mark.lane]
        if mark.interval is not None:
            parts.append(wide_line(span.x(mark.interval[0]), y, span.x(mark.interval[1]), y, f"bar {mark.lane}"))
        parts.append(_shape(span.x(mark.mean), y, mark.lane))
    if not marks:
        parts.append(wide_words("no accuracy given"))
    if needed is not None:
        parts.append(wide_line(span.x(needed), 0, span.x(needed), WIDE_HEIGHT, "needed"))
    return wide_svg(parts)


def _shape(x: str, y: float, lane: str) -> Markup:
    if lane == "bp frozen":
        # A rotated square: percentages position a nested svg, in which pixels are counted from its corner.
        diamond = '<svg x="{}" y="{}" class="mark"><path class="diamond" d="M0-5l5 5l-5 5l-5-5z"/></svg>'
        return Markup(diamond).format(x, y)
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(
        "dot" if lane == "own" else "dot open", x, y, 5 if lane == "own" else 4.2
    )


def interval_words(card: Card) -> str:
    """What the intervals of the plot of accuracies are over."""
    claim = card["claim"]
    level = f"{card['statistics']['confidence']:.0%}"
    n = len(claim["headline_acc"])
    if n > 1:
        return f"{level} intervals over {counted(n, 'seeds')}"
    if claim.get("test_samples") and card["statistics"]["unit"] != NATS:
        return f"{level} intervals over {claim['test_samples']} test samples"
    return "one seed, no interval"


def accuracy_name(card: Card) -> str:
    is_loss = card["statistics"]["unit"] == NATS
    return "test loss, nats a token (less is better)" if is_loss else "test accuracy"


def accuracy_texts(marks: Sequence[AccuracyMark], is_loss: bool) -> tuple[str, ...]:
    return tuple(mark.text(not is_loss) for mark in marks) or ("no accuracy was given",)


def needed_value(card: Card, frozen: float) -> float:
    """The accuracy or loss that the depth claim asks for, beside this one of the frozen baseline."""
    t = card["thresholds"]
    if card["statistics"]["unit"] == NATS:
        return frozen - float(t["frozen_loss_margin_nats"])
    return frozen + float(t["frozen_acc_margin_pp"]) / 100
