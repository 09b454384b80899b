"""Small plots as inline SVG, without script or external resources; the page's style sets their size."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from walkback.report.cells import tidy

_WIDTH, _HEIGHT = 240, 150
_LEFT, _RIGHT, TOP, _BOTTOM = 40, 8, 22, 32
_CROSS_SPACE = 12
"""Space below the lowest value, for crosses in place of missing values."""
_LETTER = 6.5
"""The approximate width of a letter of small text."""
_TICKS = 4
_STEPS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)
_SMALLEST = 1e-300
"""Drawn in place of a zero on a logarithmic axis; the mark's title shows the value itself."""

Point = tuple[float, float | None]
"""The position along x and the value; None for a missing value, across which no line is drawn."""


@dataclass(frozen=True)
class AxisScale:
    """The range of a vertical axis; `low` and `high` are exponents of ten where it is logarithmic."""

    low: float
    high: float
    log: bool = False

    @staticmethod
    def decades(values: Iterable[float]) -> AxisScale:
        """A logarithmic axis of whole powers of ten around the values; a zero is drawn at the lowest."""
        logs = [_log(value) for value in values if value > 0] or [0.0]
        low, high = math.floor(min(logs)), math.ceil(max(logs))
        return AxisScale(low, high, log=True) if high > low else AxisScale(low - 1, high + 1, log=True)

    @staticmethod
    def around(values: Iterable[float], low: float, high: float) -> AxisScale:
        """A linear axis from `low` to `high`; an end that values exceed is moved beyond them, with a small margin."""
        known = list(values)
        least, most = min([low, *known]), max([high, *known])
        margin = 0.06 * (most - least)
        return AxisScale(least - margin if least < low else low, most + margin if most > high else high)

    def share(self, value: float) -> float:
        """The position of a value on the axis, from 0 (`low`) to 1 (`high`)."""
        at = _log(value) if self.log else value
        return (min(max(at, self.low), self.high) - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Values and labels of the ticks."""
        if self.log:
            step = max(1, math.ceil((self.high - self.low) / _TICKS))
            powers = range(int(self.low), int(self.high) + 1, step)
            # A power of ten above the largest float is placed at the largest float.
            return [(10.0**power if power <= 308 else sys.float_info.max, tidy(f"1e{power}")) for power in powers]
        span = self.high - self.low
        step_ = next((step for step in _STEPS if span / step <= _TICKS + 1), _STEPS[-1])
        first, last = math.ceil(self.low / step_ - 1e-9), math.floor(self.high / step_ + 1e-9)
        return [(step_ * index, f"{step_ * index:g}") for index in range(first, last + 1)]


@dataclass(frozen=True)
class SvgAxes:
    """One plot whose x axis has whole numbers, such as layers or epochs."""

    title: str
    x_name: str
    first: int
    last: int
    y: AxisScale
    above: int = 0
    """Space above the highest value, for text."""

    def x(self, at: float) -> float:
        """The horizontal position of a number."""
        width = _WIDTH - _LEFT - _RIGHT - 20
        share = 0.5 if self.last == self.first else (at - self.first) / (self.last - self.first)
        return round(_LEFT + 10 + width * share, 1)

    def level(self, value: float) -> float:
        """The vertical position of a value."""
        height = _HEIGHT - TOP - _BOTTOM - _CROSS_SPACE - self.above
        return round(_HEIGHT - _BOTTOM - _CROSS_SPACE - self.y.share(value) * height, 1)

    def drawn(self, parts: Iterable[Markup], label: str) -> Markup:
        """The plot with `parts` on its axes; `label` describes it to screen readers."""
        svg = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
        return svg.format(_WIDTH, _HEIGHT, label, Markup("").join([*self._frame(), *parts]))

    def curve(self, points: Sequence[Point], kind: str) -> list[Markup]:
        """Lines between neighbours that both have a value."""
        runs: list[list[str]] = [[]]
        for x, value in points:
            if value is None:
                runs.append([])  # A line across a missing value would suggest one.
            else:
                runs[-1].append(f"{self.x(x)},{self.level(value)}")
        line = Markup('<polyline class="{}" points="{}"/>')
        return [line.format(kind, " ".join(run)) for run in runs if len(run) > 1]

    def dot(self, x: float, value: float, kind: str, radius: float, title: str) -> Markup:
        """A dot of CSS class `kind`; `title` is shown on hover."""
        dot = Markup('<circle class="{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>')
        return dot.format(kind, self.x(x), self.level(value), radius, title)

    def cross(self, x: float, title: str) -> Markup:
        """A cross below all values, in place of a missing one; `title` is shown on hover."""
        cross = Markup('<path class="cross" d="M{},{}l7,7m0,-7l-7,7"><title>{}</title></path>')
        return cross.format(round(self.x(x) - 3.5, 1), _HEIGHT - _BOTTOM - 9, title)

    def threshold(self, value: float, words: str, curves: Sequence[Sequence[Point]]) -> list[Markup]:
        """A horizontal dashed line, labelled at the end further away from the curves; to be drawn before them."""
        y = self.level(value)
        text_y = y - 4 if y - TOP > 14 else y + 12
        known = [(self.x(x), self.level(v)) for points in curves for x, v in points if v is not None]
        width = _LETTER * len(words)
        left = min((abs(at - text_y + 4) for x, at in known if x < _LEFT + width), default=_HEIGHT)
        right = min((abs(at - text_y + 4) for x, at in known if x > _WIDTH - _RIGHT - width), default=_HEIGHT)
        x, anchor = (_LEFT + 2, "start") if left > right else (_WIDTH - _RIGHT, "end")
        return [svg_line(_LEFT, y, _WIDTH - _RIGHT, y, "floor"), svg_text(x, text_y, words, anchor, "small halo warn")]

    def mark(self, x: float, kind: str) -> Markup:
        """A vertical line at one position along x."""
        return svg_line(self.x(x), TOP, self.x(x), _HEIGHT - _BOTTOM, kind)

    def words(self, words: str) -> Markup:
        """A text in the middle of the plot, where there is nothing to draw."""
        return svg_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT / 2, words, "middle", "instead")

    def text_right_of_title(self, words: str) -> Markup:
        """A text at the right end of the title's line."""
        return svg_text(_WIDTH - _RIGHT, 13, words, "end", "small")

    def _frame(self) -> Iterable[Markup]:
        yield svg_text(0, 13, self.title, "start", "name")
        for value, label in self.y.ticks():
            y = self.level(value)
            yield svg_line(_LEFT, y, _WIDTH - _RIGHT, y, "zero" if value == 0 and self.y.low < 0 else "grid")
            yield svg_text(_LEFT - 5, y + 4, label, "end", "small")
        for x in self._x_ticks():
            yield svg_text(self.x(x), _HEIGHT - _BOTTOM + 14, str(x), "middle", "small")
        yield svg_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, self.x_name, "middle", "small")

    def _x_ticks(self) -> list[int]:
        """Evenly spaced whole numbers whose labels do not overlap; also the first and the last where they fit."""
        span = self.last - self.first
        step = next(
            step * power for power in (1, 10, 100, 1000, 10000) for step in (1, 2, 5) if span <= 7 * step * power
        )
        inner = [at for at in range(0, self.last + 1, step) if at >= self.first]
        ends = [at for at in (self.first, self.last) if all(abs(at - other) > step / 2 for other in inner)]
        return sorted({*inner, *ends})


def svg_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A line of CSS class `kind`."""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def svg_text(x: float, y: float, words: str, anchor: str, kind: str) -> Markup:
    """An escaped text of CSS class `kind`; `anchor` is start, middle or end."""
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(kind, x, y, anchor, escape(words))


def _log(value: float) -> float:
    return math.log10(max(value, _SMALLEST))
