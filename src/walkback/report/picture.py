"""The picture of audit pages and cards: accuracy beside the frozen baselines, and the credit block by block.

Horizontal positions are percentages, so that the plots are as wide as the screen gives them and dots stay round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from markupsafe import Markup

from walkback.judge.statistics import NATS, exact_interval, mean_interval
from walkback.report.cells import counted, size, tidy
from walkback.report.sections import Card

BASELINES = {"method_shell": "blocks frozen, rest by the method", "unnamed": "frozen baseline of unknown kind"}
"""The frozen baselines that decide, by their stored name."""
_LANES = {"own": 8.0, "frozen": 20.0, "bp frozen": 32.0}
"""The heights of the three marks of the plot of accuracies."""
HEIGHT = 40
_TOP, _BOTTOM = 5.0, 35.0


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
    parts = [_line(x, 0, x, HEIGHT, "grid") for x, _ in ticks]
    for mark in marks:
        y = _LANES[mark.lane]
        if mark.interval is not None:
            parts.append(_line(span.x(mark.interval[0]), y, span.x(mark.interval[1]), y, f"bar {mark.lane}"))
        parts.append(_shape(span.x(mark.mean), y, mark.lane))
    if not marks:
        parts.append(_words("no accuracy given"))
    if needed is not None:
        parts.append(_line(span.x(needed), 0, span.x(needed), HEIGHT, "needed"))
    return _svg(parts)


def _shape(x: str, y: float, lane: str) -> Markup:
    if lane == "bp frozen":
        # A rotated square: percentages position a nested svg, in which pixels are counted from its corner.
        diamond = '<svg x="{}" y="{}" class="mark"><path class="diamond" d="M0-5l5 5l-5 5l-5-5z"/></svg>'
        return Markup(diamond).format(x, y)
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(
        "dot" if lane == "own" else "dot open", x, y, 5 if lane == "own" else 4.2
    )


@dataclass(frozen=True)
class BlockMark:
    """The credit of one block over seeds."""

    index: int
    exact: bool
    values: tuple[float, ...]
    null: float | None
    """The standard deviation of its null, of the seed where it is widest."""
    seeds: int

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    def text(self, null_z: float) -> str:
        if not self.values:
            return f"block {self.index}: NOT MEASURED"
        if self.exact:
            return f"block {self.index}: {fmean(self.values):+.3f}, the gradient by construction"
        ends = f" ({min(self.values):+.3f} to {max(self.values):+.3f})" if len(self.values) > 1 else ""
        null = "" if self.null is None else f", null ±{null_z * self.null:.3f}"
        return f"block {self.index}: {fmean(self.values):+.3f}{ends}{null}"


def block_marks(cards: Sequence[Card]) -> list[BlockMark]:
    """The cosine of the credit that trains each block with the gradient at its output; empty if it was not measured."""
    blocks = [card.get("blocks") or [] for card in cards]
    found = []
    for same in zip(*blocks, strict=False):
        values = tuple(block["used_cos"]["value"] for block in same if block["used_cos"]["status"] == "ok")
        nulls = [
            abs(block["used_cos"]["value"] / block["used_z"]["value"])
            for block in same
            if block["used_cos"]["status"] == block["used_z"]["status"] == "ok" and block["used_z"]["value"]
        ]
        exact = all(block["is_exact"] for block in same)
        found.append(BlockMark(same[0]["index"], exact, values, max(nulls, default=None), len(same)))
    return found if any(mark.values for mark in found) else []


def cosine_range(rows: Iterable[Sequence[BlockMark]], null_z: float) -> tuple[float, float]:
    """The lowest and the highest value of all plots of cosines."""
    marks = [mark for row in rows for mark in row]
    values = [value for mark in marks for value in mark.values]
    bands = [null_z * mark.null for mark in marks if mark.null is not None]
    return min([-0.1, *values, *(-band for band in bands)]), max([0.2, *values, *bands])


def without_blocks(cards: Sequence[Card]) -> str:
    """What is said in place of cosines by block; cards of older versions have them by layer."""
    layers = [layer for card in cards for layer in card["layers"]]
    return "measured by layer only" if any(layer["credit"] for layer in layers) else "no credit measured"


def cosine_plot(
    marks: Sequence[BlockMark], ends: tuple[float, float], null_z: float, instead: str = "no credit measured"
) -> Markup:
    """A dot for each block, with a line from the lowest to the highest seed, over the shaded null."""
    low, high = ends

    def y(value: float) -> float:
        return round(_BOTTOM - (value - low) / (high - low) * (_BOTTOM - _TOP), 1)

    parts = [_line("0%", y(0), "100%", y(0), "zero")]
    width = 100 / max(len(marks), 1)
    radius = 4 if len(marks) <= 12 else 2
    for at, mark in enumerate(marks):
        x = f"{width * (at + 0.5):.2f}%"
        if mark.null is not None and not mark.exact:
            band = Markup('<rect class="null" x="{:.2f}%" width="{:.2f}%" y="{}" height="{}" data-null="{:.6g}"/>')
            half = min(null_z * mark.null, high)
            parts.append(band.format(width * (at + 0.1), width * 0.8, y(half), round(y(-half) - y(half), 1), mark.null))
        if len(mark.values) > 1:
            parts.append(_line(x, y(min(mark.values)), x, y(max(mark.values)), "bar own"))
        if mark.values:
            kind = "dot open" if mark.exact else "dot"
            dot = Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>')
            parts.append(dot.format(kind, x, y(fmean(mark.values)), radius))
    if not marks:
        parts = [_words(instead)]
    return _svg(parts)


def block_texts(marks: Sequence[BlockMark], null_z: float, instead: str = "no credit measured") -> list[str]:
    """The numbers of the plot."""
    return [tidy(mark.text(null_z)) for mark in marks] or [instead]


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


def plots_key(*cards: Card) -> Markup:
    """What the plots of these cards show, in words that need no manual; all were judged alike."""
    card = cards[0]
    is_loss = card["statistics"]["unit"] == NATS
    unit = "nats" if is_loss else "percentage points (pp)"
    line = _threshold(card, "frozen_loss_margin_nats" if is_loss else "frozen_acc_margin_pp")
    return Markup(
        "Bars: {}. Dashed: what the depth claim asks for, {} {} over the frozen blocks. "
        "Shaded: a block’s null, ±{} standard deviations (sd) of the cosine of its training signal "
        "(credit) when that is rotated at random. Open dots of cosines: the gradient by construction. "
        "Numbers appear under the pointer, or with the Tab key."
    ).format(" or ".join(dict.fromkeys(map(interval_words, cards))), line, unit, _threshold(card, "null_z"))


def chips_key(card: Card) -> Markup:
    """What the checks and claims beside the plots are about."""
    return Markup(
        "Growth: the largest ratio of hidden norms from one layer to the next; fails above {}. Reference: the norm of "
        "the gradient at the deepest hidden state, with which the credit is compared; fails under {}. Depth: {} better "
        "than with frozen blocks. ✓ passes or may be claimed, ✗ fails or may not, ? not decided, – not applicable."
    ).format(
        _threshold(card, "h_norm_explosion_ratio"),
        _threshold(card, "g_norm_floor"),
        "loss" if card["statistics"]["unit"] == NATS else "accuracy",
    )


def _threshold(card: Card, name: str) -> Markup:
    """A threshold in a text; the audit page's script replaces it when it is moved."""
    return Markup('<span data-threshold="{}">{}</span>').format(name, size(card["thresholds"][name]))


@dataclass(frozen=True)
class CardPicture:
    """The two plots of one card."""

    accuracy_name: str
    ticks: tuple[tuple[str, str], ...]
    accuracy: Markup
    accuracy_texts: tuple[str, ...]
    cosines: Markup
    cosine_texts: tuple[str, ...]


def card_picture(card: Card) -> CardPicture | None:
    """The plots of one card; None if it has neither accuracies nor cosines."""
    marks, blocks = marks_of(card), block_marks([card])
    if not marks and not blocks:
        return None
    is_loss, null_z, span = card["statistics"]["unit"] == NATS, card["thresholds"]["null_z"], span_of(marks)
    ticks = span.ticks(percent=not is_loss) if marks else []
    needed = needed_value(card, marks[1].mean) if [mark.lane for mark in marks[:2]] == ["own", "frozen"] else None
    return CardPicture(
        accuracy_name=accuracy_name(card),
        ticks=tuple(ticks),
        accuracy=accuracy_plot(marks, span, ticks, needed),
        accuracy_texts=accuracy_texts(marks, is_loss),
        cosines=cosine_plot(blocks, cosine_range([blocks], null_z), null_z, without_blocks([card])),
        cosine_texts=tuple(block_texts(blocks, null_z, without_blocks([card]))),
    )


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


def _svg(parts: Iterable[Markup]) -> Markup:
    """A plot; the element around it has the description."""
    return Markup('<svg width="100%" height="{}" aria-hidden="true">{}</svg>').format(HEIGHT, Markup("").join(parts))


def _line(x1: str, y1: float, x2: str, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def _words(words: str) -> Markup:
    return Markup('<text class="instead" x="50%" y="24" text-anchor="middle">{}</text>').format(words)
