"""The layer strip of a card: four small plots by layer, as inline SVG without script or external resources."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from walkback.report.cards import View
from walkback.report.cells import Cell
from walkback.report.sections import LayerView

_WIDTH, _HEIGHT = 220, 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 6, 26, 34
_TICKS = 4
_CROSS_SPACE = 12
"""Space below the lowest value, for the crosses of layers without a value."""
_CROSS_Y = _HEIGHT - _BOTTOM - 2
"""The height of those crosses."""
_LETTER = 6.6
"""The approximate width of a letter in a tooltip."""
_SMALLEST = 1e-300
"""Drawn in place of a zero on a logarithmic axis; the tooltip shows the value itself."""


@dataclass(frozen=True)
class StripPanel:
    """One plot: the quantity it shows of each layer, and its vertical axis."""

    title: str
    quantity: Callable[[LayerView], Cell]
    low: float
    high: float
    log: bool = False

    def y(self, value: float) -> float:
        """The vertical position of a value; values outside the axis are drawn at its end."""
        at = _log(value) if self.log else value
        share = (min(max(at, self.low), self.high) - self.low) / (self.high - self.low)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM - _CROSS_SPACE) - _CROSS_SPACE, 1)


def strip(view: View) -> list[Markup]:
    """The plots of hidden norm, gradient norm, float64 cosine and credit cosine, in this order."""
    layers = view.layers
    hidden, grads = _values(layers, lambda x: x.hidden), _values(layers, lambda x: x.grad)
    replays, cosines = _values(layers, lambda x: x.replay), _values(layers, lambda x: x.credit)
    bands = [band for layer in layers if (band := layer.band) is not None]
    lowest, highest = _around([0.0, *cosines, *(-band for band in bands)], [*cosines, *bands, 0.2])
    if any(layer.label != "none" for layer in layers):
        highest += 0.2 * (highest - lowest)  # Space for the labels above their points.
    return [
        _drawn(StripPanel("‖h‖, log scale", lambda x: x.hidden, *_decades(hidden), log=True), layers),
        _drawn(
            StripPanel("‖g‖ @128, log scale", lambda x: x.grad, *_decades([*grads, view.floor]), log=True),
            layers,
            floor=(view.floor, view.floor_text),
        ),
        _drawn(
            StripPanel("cos(g32, g64)", lambda x: x.replay, -1.0 if min(replays, default=0) < 0 else 0.0, 1.0), layers
        ),
        _drawn(
            StripPanel(f"credit cosine, null ±{view.band_text} sd", lambda x: x.credit, lowest, highest),
            layers,
            credit=True,
        ),
    ]


def _drawn(
    panel: StripPanel, layers: Sequence[LayerView], floor: tuple[float, str] | None = None, credit: bool = False
) -> Markup:
    parts = [_axes(panel, layers)]
    if credit:
        parts.append(_band(panel, layers))
    if floor:
        y = panel.y(floor[0])
        parts.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "floor"))
        # Above its line, unless there is no space.
        text_y = y - 4 if y - _TOP > 14 else y + 12
        parts.append(_text(_WIDTH - _RIGHT, text_y, f"floor {floor[1]}", "end", "small warn"))
    points = [(_x(layer, layers), panel.quantity(layer), layer) for layer in layers]
    runs: list[list[str]] = [[]]
    for x, cell, _ in points:
        if cell.value is None:
            runs.append([])  # A line across a missing value would suggest one.
        else:
            runs[-1].append(f"{x},{panel.y(cell.value)}")
    parts += [Markup('<polyline class="curve" points="{}"/>').format(" ".join(run)) for run in runs if len(run) > 1]
    radius = 4 if len(layers) <= 12 else 2.5
    for x, cell, layer in points:
        if cell.value is None:
            parts.append(Markup('<path class="cross" d="M{},{}l8,8m0,-8l-8,8"/>').format(x - 4, _CROSS_Y - 4))
        else:
            kind = "dot open" if credit and layer.label != "none" else "dot"
            dot = Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>')
            parts.append(dot.format(kind, x, panel.y(cell.value), radius))
    if credit:
        parts += _labels(panel, points)
    if all(cell.value is None for _, cell, _ in points):
        parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT / 2, points[0][1].text, "middle", "bad"))
    parts += [_hit(layer, layers) for layer in layers]
    # Last, so that nothing is drawn over the tooltips.
    parts += [
        _tip(x, _CROSS_Y if cell.value is None else panel.y(cell.value), cell, layer, credit)
        for x, cell, layer in points
    ]
    svg = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{} by layer">{}</svg>')
    return svg.format(_WIDTH, _HEIGHT, panel.title, Markup("").join(parts))


def _labels(panel: StripPanel, points: Sequence[tuple[float, Cell, LayerView]]) -> Iterable[Markup]:
    """Labels of layers whose cosine follows from their construction; one for neighbours with the same label."""
    previous = ""
    for x, cell, layer in points:
        if layer.label not in ("none", previous) and cell.value is not None:
            y = panel.y(cell.value)
            end = x > _WIDTH / 2
            yield _text(x + 4 if end else x - 4, y - 8, layer.label, "end" if end else "start", "small")
        previous = layer.label


def _axes(panel: StripPanel, layers: Sequence[LayerView]) -> Markup:
    bottom = _HEIGHT - _BOTTOM
    parts = [_text(0, 14, panel.title, "start", "name")]
    for value, label in _log_ticks(panel) if panel.log else _ticks(panel):
        y = panel.y(value)
        parts += [_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"), _text(_LEFT - 6, y + 4, label, "end", "small")]
    if not panel.log and panel.low < 0:
        parts.append(_line(_LEFT, panel.y(0), _WIDTH - _RIGHT, panel.y(0), "zero"))
    step = max(1, math.ceil(len(layers) / 9))
    for layer in layers[::step]:
        parts.append(_text(_x(layer, layers), bottom + 16, str(layer.index), "middle", "small"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, "layer", "middle", "small"))
    return Markup("").join(parts)


def _band(panel: StripPanel, layers: Sequence[LayerView]) -> Markup:
    known = [(_x(layer, layers), layer.band) for layer in layers if layer.band is not None]
    if len(known) == 1:
        known = [(known[0][0] - 8, known[0][1]), (known[0][0] + 8, known[0][1])]
    above = [f"{x},{panel.y(band)}" for x, band in known]
    below = [f"{x},{panel.y(-band)}" for x, band in reversed(known)]
    return Markup('<polygon class="null" points="{}"/>').format(" ".join(above + below)) if known else Markup("")


def _x(layer: LayerView, layers: Sequence[LayerView]) -> float:
    width = _WIDTH - _LEFT - _RIGHT - 24
    return round(_LEFT + 12 + width * (layer.index / max(1, len(layers) - 1) if len(layers) > 1 else 0.5), 1)


def _values(layers: Sequence[LayerView], quantity: Callable[[LayerView], Cell]) -> list[float]:
    return [value for layer in layers if (value := quantity(layer).value) is not None]


def _log(value: float) -> float:
    return math.log10(max(value, _SMALLEST))


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """The whole powers of ten around the values, as exponents, at least one apart; a zero is drawn at the lowest."""
    logs = [_log(value) for value in values if value > 0] or [0.0]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return (low, high) if high > low else (low - 1, high + 1)


def _around(lows: Iterable[float], highs: Iterable[float]) -> tuple[float, float]:
    low, high = min(lows), max(highs)
    margin = 0.08 * (high - low)
    return max(-1.05, low - margin), min(1.05, high + margin)


def _log_ticks(panel: StripPanel) -> list[tuple[float, str]]:
    step = max(1, math.ceil((panel.high - panel.low) / _TICKS))
    # A power of ten above the largest float is placed at the largest float.
    return [
        (10.0**power if power <= 308 else sys.float_info.max, f"1e{power}")
        for power in range(int(panel.low), int(panel.high) + 1, step)
    ]


def _ticks(panel: StripPanel) -> list[tuple[float, str]]:
    span = panel.high - panel.low
    step = next(step for step in (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0) if span / step <= _TICKS + 1)
    first = math.ceil(panel.low / step - 1e-9)
    last = math.floor(min(panel.high, 1.0) / step + 1e-9)
    return [(step * index, f"{step * index:g}") for index in range(first, last + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def _text(x: float, y: float, words: str, anchor: str, kind: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(kind, x, y, anchor, escape(words))


def _hit(layer: LayerView, layers: Sequence[LayerView]) -> Markup:
    """The area that shows a layer's tooltip on hover: the layer's whole column, since a dot is small."""
    x, width = _x(layer, layers), (_WIDTH - _LEFT - _RIGHT - 24) / max(1, len(layers) - 1)
    path = Markup('<path class="hit m{}" d="M{},{}h{}v{}h-{}z"/>')
    return path.format(layer.index, round(x - width / 2, 1), _TOP, round(width, 1), _HEIGHT - _TOP, round(width, 1))


def _tip(x: float, y: float, cell: Cell, layer: LayerView, credit: bool) -> Markup:
    """The tooltip of one layer, moved so that it stays inside the plot."""
    label = f" ({layer.label})" if credit and layer.label != "none" else ""
    words = f"layer {layer.index}: {cell.text}{label}"
    half = _LETTER * len(words) / 2
    text_x = min(max(x, half), _WIDTH - half)
    text = Markup('<text class="tip t{}" x="{}" y="{}">{}</text>')
    # Above its mark, or below it where the plot's title is in the way.
    return text.format(layer.index, round(text_x, 1), round(y - 12 if y > _TOP + 24 else y + 22, 1), words)
