"""Labels beside what they name, moved apart until none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from walkback.report.figure_styles import GREY, LineStyle
from walkback.report.figure_text import SIZE, typeset

_Axes = Any
"""matplotlib axes; matplotlib is imported only when a figure is drawn."""
LINE_HEIGHT = 1.25 * SIZE
"""From one line of text to the next, in points."""
_GAP, _MARKER_AT = 12.0, 5.0
"""Points from the right end of the axes to a label, and to the marker before it."""
_NEAR, _FAR = (7.0, 12.0), (18.0, 26.0, 36.0)
"""Points from a mark to its name; from the far ones a line leads back to it."""
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in pixels."""


@dataclass
class EndLabel:
    """A label right of the axes, at the height at which a curve or a threshold ends."""

    text: Any
    """The matplotlib text; its horizontal place is fixed before the layout, its height after it."""
    marker: Any
    """The curve's marker before the text; None for a threshold."""
    ends: Sequence[tuple[float, float]]
    """The last points of the curves with this label."""
    colour: str


def end_label(axes: _Axes, name: str, ends: Sequence[tuple[float, float]], style: LineStyle | None) -> EndLabel:
    """Put a label right of the axes; `place_end_labels` sets its height."""
    from matplotlib.transforms import ScaledTranslation

    def right_of_axes(points: float) -> Any:
        return axes.transAxes + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)

    marker = None
    if style is not None:
        marker = _line(axes, [1], [0.5], style.colour, right_of_axes(_MARKER_AT), marker=style.marker)
    text = axes.text(
        1,
        0.5,
        typeset(name),
        transform=right_of_axes(_GAP if style else _MARKER_AT),
        va="center_baseline",
        color=GREY if style is None else "black",
    )
    return EndLabel(text, marker, ends, GREY if style is None else style.colour)


def place_end_labels(axes: _Axes, labels: Sequence[EndLabel]) -> None:
    """Move labels apart, near the ends of their curves, and lead lines to those that are not beside them."""
    to_axes = axes.transAxes.inverted()
    box = axes.get_window_extent()
    height = box.height * 72 / axes.figure.dpi
    ends = [to_axes.transform(axes.transData.transform(label.ends)) for label in labels]
    start = 1 + (_MARKER_AT - 2) * axes.figure.dpi / 72 / box.width
    wanted = [float(each[:, 1].mean()) * height for each in ends]
    tall = [LINE_HEIGHT * (1 + label.text.get_text().count("\n")) for label in labels]
    for label, own_ends, at in zip(labels, ends, spread(wanted, tall, height), strict=True):
        y = at / height
        label.text.set_y(y)
        if label.marker is not None:
            label.marker.set_ydata([y])
        for x_end, y_end in own_ends:
            _line(axes, [x_end, start], [y_end, y], label.colour, axes.transAxes, linewidth=0.5, zorder=1)


def _line(axes: _Axes, x: Sequence[float], y: Sequence[float], colour: str, transform: Any, **given: Any) -> Any:
    from matplotlib.lines import Line2D

    return axes.add_artist(Line2D(x, y, color=colour, transform=transform, clip_on=False, **given))


def spread(wanted: Sequence[float], tall: Sequence[float], height: float) -> list[float]:
    """Heights near the wanted ones at which labels do not overlap, from 0 to `height` where they fit there."""
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    groups: list[tuple[list[int], float]] = []
    """Labels that touch, with the middle of their group."""
    for index in order:
        groups.append(([index], min(max(wanted[index], 0.0), height)))
        while len(groups) > 1 and _top(groups[-2], tall) > _bottom(groups[-1], tall):
            (right, right_middle), (left, left_middle) = groups.pop(), groups.pop()
            middle = (left_middle * len(left) + right_middle * len(right)) / (len(left) + len(right))
            groups.append((left + right, _inside(middle, sum(tall[i] for i in left + right), height)))
    found = [0.0] * len(wanted)
    for group in groups:
        at = _bottom(group, tall)
        for index in group[0]:
            found[index] = at + tall[index] / 2
            at += tall[index]
    return found


def _bottom(group: tuple[list[int], float], tall: Sequence[float]) -> float:
    return group[1] - sum(tall[index] for index in group[0]) / 2


def _top(group: tuple[list[int], float], tall: Sequence[float]) -> float:
    return group[1] + sum(tall[index] for index in group[0]) / 2


def _inside(middle: float, tall: float, height: float) -> float:
    """The middle of a group moved so that it ends at most half a line above or below the axes."""
    low, high = (tall - LINE_HEIGHT) / 2, height - (tall - LINE_HEIGHT) / 2
    return min(max(middle, low), high) if low <= high else height / 2


def place_names(axes: _Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write names beside points, where they cover neither a point nor another name."""
    pixel = axes.figure.dpi / 72
    renderer = axes.figure.canvas.get_renderer()
    at = [tuple(axes.transData.transform((x, y))) for x, y, _ in points]
    taken: list[Box] = [(x - 4 * pixel, y - 4 * pixel, x + 4 * pixel, y + 4 * pixel) for x, y in at]
    inside = axes.get_window_extent()
    for (x, y, name), (left, bottom) in zip(points, at, strict=True):
        if not name:
            continue
        text = axes.annotate(typeset(name), (x, y), xytext=(0, 0), textcoords="offset points")
        size = text.get_window_extent(renderer)
        candidates = [(distance, across, up) for distance in (*_NEAR, *_FAR) for across, up in _DIRECTIONS]
        for distance, across, up in candidates:
            box = _box_beside(left + across * distance * pixel, bottom + up * distance * pixel, across, up, size)
            is_free = not any(overlap(box, other) for other in taken)
            if is_free and inside.x0 <= box[0] and box[2] <= inside.x1 and inside.y0 <= box[1] and box[3] <= inside.y1:
                break
        taken.append(box)
        text.set_position((across * distance, up * distance))
        text.set(ha={1: "left", 0: "center", -1: "right"}[across], va={1: "bottom", 0: "center", -1: "top"}[up])
        if distance in _FAR:
            axes.annotate(
                "",
                (x, y),
                xytext=(across * distance, up * distance),
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": 3},
            )


def _box_beside(x: float, y: float, across: int, up: int, size: Any) -> Box:
    left = {1: x, 0: x - size.width / 2, -1: x - size.width}[across]
    bottom = {1: y, 0: y - size.height / 2, -1: y - size.height}[up]
    return left, bottom, left + size.width, bottom + size.height


def overlap(one: Box, other: Box, slack: float = 0.0) -> bool:
    """Whether two boxes cover a common area wider and higher than `slack`."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width > slack and height > slack
