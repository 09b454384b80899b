"""A small pair of axes as inline SVG, drawn by hand: no script, no outside resource, sized by the page's style."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from walkback.report.cells import tidy

_WIDTH, _HEIGHT = 240, 150
_LEFT, _RIGHT, TOP, _BOTTOM = 40, 8, 22, 32
LANE = 12
"""Left free below the lowest value, for the crosses of what has none."""
_LETTER = 6.5
"""About the width of a letter of small text."""
_TICKS = 4
_STEPS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)
_SMALLEST = 1e-300
"""What a logarithm shows a zero as; its own value is in its title."""

Point = tuple[float, float | None]
"""Where along x, and the value; None where there is none, across which no line is drawn."""


@dataclass(frozen=True)
class AxisScale:
    """The vertical axis."""

    low: float
    high: float
    log: bool = False

    @staticmethod
    def decades(values: Iterable[float]) -> AxisScale:
        """Whole powers of ten around the values, at least one apart; a zero lies on the lowest."""
        logs = [_log(value) for value in values if value > 0] or [0.0]
        low, high = math.floor(min(logs)), math.ceil(max(logs))
        return AxisScale(low, high, log=True) if high > low else AxisScale(low - 1, high + 1, log=True)

    @staticmethod
    def around(values: Iterable[float], low: float, high: float) -> AxisScale:
        """The values and at least `low` to `high`, with a little room at either end that is not one of the two."""
        known = list(values)
        least, most = min([low, *known]), max([high, *known])
        room = 0.06 * (most - least)
        return AxisScale(least - room if least < low else low, most + room if most > high else high)

    def share(self, value: float) -> float:
        at = _log(value) if self.log else value
        return (min(max(at, self.low), self.high) - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        if self.log:
            step = max(1, math.ceil((self.high - self.low) / _TICKS))
            powers = range(int(self.low), int(self.high) + 1, step)
            # A power of ten above the largest float is written as that.
            return [(10.0**power if power <= 308 else sys.float_info.max, tidy(f"1e{power}")) for power in powers]
        span = self.high - self.low
        step_ = next((step for step in _STEPS if span / step <= _TICKS + 1), _STEPS[-1])
        first, last = math.ceil(self.low / step_ - 1e-9), math.floor(self.high / step_ + 1e-9)
        return [(step_ * index, f"{step_ * index:g}") for index in range(first, last + 1)]


@dataclass(frozen=True)
class SvgAxes:
    """One plot over whole numbers, such as layers or epochs."""

    title: str
    x_name: str
    first: int
    last: int
    y: AxisScale
    above: int = 0
    """Left free above the highest value, for words."""

    def x(self, at: float) -> float:
        room = _WIDTH - _LEFT - _RIGHT - 20
        share = 0.5 if self.last == self.first else (at - self.first) / (self.last - self.first)
        return round(_LEFT + 10 + room * share, 1)

    def level(self, value: float) -> float:
        high = _HEIGHT - TOP - _BOTTOM - LANE - self.above
        return round(_HEIGHT - _BOTTOM - LANE - self.y.share(value) * high, 1)

    def drawn(self, parts: Iterable[Markup], says: str) -> Markup:
        """The axes with `parts` on them; `says` is what a reader who cannot see it is told."""
        svg = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
        return svg.format(_WIDTH, _HEIGHT, says, Markup("").join([*self._frame(), *parts]))

    def curve(self, points: Sequence[Point], kind: str) -> list[Markup]:
        """Lines between neighbours that both have a value."""
        runs: list[list[str]] = [[]]
        for x, value in points:
            if value is None:
                runs.append([])  # A line across a missing value would invent it.
            else:
                runs[-1].append(f"{self.x(x)},{self.level(value)}")
        line = Markup('<polyline class="{}" points="{}"/>')
        return [line.format(kind, " ".join(run)) for run in runs if len(run) > 1]

    def dot(self, x: float, value: float, kind: str, radius: float, says: str) -> Markup:
        dot = Markup('<circle class="{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>')
        return dot.format(kind, self.x(x), self.level(value), radius, says)

    def cross(self, x: float, says: str) -> Markup:
        """In the lane below all values: what has none is not drawn as one."""
        cross = Markup('<path class="cross" d="M{},{}l7,7m0,-7l-7,7"><title>{}</title></path>')
        return cross.format(round(self.x(x) - 3.5, 1), _HEIGHT - _BOTTOM - 9, says)

    def threshold(self, value: float, words: str, curves: Sequence[Sequence[Point]]) -> list[Markup]:
        """A dashed line across, named at the end from which the curves stay further away; to be drawn before them."""
        y = self.level(value)
        beside = y - 4 if y - TOP > 14 else y + 12
        known = [(self.x(x), self.level(v)) for points in curves for x, v in points if v is not None]
        wide = _LETTER * len(words)
        left = min((abs(at - beside + 4) for x, at in known if x < _LEFT + wide), default=_HEIGHT)
        right = min((abs(at - beside + 4) for x, at in known if x > _WIDTH - _RIGHT - wide), default=_HEIGHT)
        x, anchor = (_LEFT + 2, "start") if left > right else (_WIDTH - _RIGHT, "end")
        return [svg_line(_LEFT, y, _WIDTH - _RIGHT, y, "floor"), svg_text(x, beside, words, anchor, "small halo warn")]

    def mark(self, x: float, kind: str) -> Markup:
        """A line up at one place along x."""
        return svg_line(self.x(x), TOP, self.x(x), _HEIGHT - _BOTTOM, kind)

    def words(self, words: str) -> Markup:
        """In the middle, where there is nothing to draw."""
        return svg_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT / 2, words, "middle", "instead")

    def aside(self, words: str) -> Markup:
        """Beside the title."""
        return svg_text(_WIDTH - _RIGHT, 13, words, "end", "small")

    def _frame(self) -> Iterable[Markup]:
        yield svg_text(0, 13, self.title, "start", "name")
        for value, label in self.y.ticks():
            y = self.level(value)
            yield svg_line(_LEFT, y, _WIDTH - _RIGHT, y, "zero" if value == 0 and self.y.low < 0 else "grid")
            yield svg_text(_LEFT - 5, y + 4, label, "end", "small")
        for x in self._places():
            yield svg_text(self.x(x), _HEIGHT - _BOTTOM + 14, str(x), "middle", "small")
        yield svg_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, self.x_name, "middle", "small")

    def _places(self) -> list[int]:
        """Whole numbers that fit beside each other, the first and the last among them."""
        span = self.last - self.first
        step = next(
            step * power for power in (1, 10, 100, 1000, 10000) for step in (1, 2, 5) if span <= 7 * step * power
        )
        inner = [at for at in range(0, self.last + 1, step) if at >= self.first]
        ends = [at for at in (self.first, self.last) if all(abs(at - other) > step / 2 for other in inner)]
        return sorted({*inner, *ends})


def svg_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def svg_text(x: float, y: float, words: str, anchor: str, kind: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(kind, x, y, anchor, escape(words))


def _log(value: float) -> float:
    return math.log10(max(value, _SMALLEST))
