"""One pair of axes: curves, points or bars with their ranges, thresholds, ticks and labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from walkback.report.figure_labels import LINE_HEIGHT, EndLabel, end_label, place_end_labels, place_names
from walkback.report.figure_styles import GREY, QUIET, LineStyle
from walkback.report.figure_text import tick_label, typeset
from walkback.report.study_report import Plot, Series

_Axes = Any
_MOST_LABELS = 12
"""The number of labels that fit beside a plot; with more of them they are in the legend."""
PLOT_HEIGHT = 1.9
"""Height of axes in inches."""
NAMED_MARK = 6.5
"""Size in points of a mark that has a name beside it."""
_DODGE = 0.7
"""The share of a row over which the marks of a horizontal plot are spread."""
_AT_THE_END = 0.8
"""A curve that ends further left than this share of the axes is labelled where it ends, not beside the axes."""
_FEW_DECADES = 1.7
"""An axis that spans fewer powers of ten also has ticks at 2 and 5."""


def labels_curves(plot: Plot) -> bool:
    """Whether each series is labelled at the end of its curve, and not in the legend."""
    curves = {series.label for series in plot.series if series.mark in ("line", "both")}
    shown = {series.label for series in plot.series if not series.quiet}
    return not plot.horizontal and shown <= curves and len(shown) + len(plot.levels) <= _MOST_LABELS


def names_beside(plot: Plot) -> list[str]:
    """The labels right of the axes: of curves and of thresholds."""
    curves = [series.label for series in plot.series if not series.quiet] if labels_curves(plot) else []
    return [] if plot.horizontal else [*dict.fromkeys(curves), *(name for name in plot.levels if name)]


class DrawnPlot:
    """A plot on its axes; `finish` places the labels, once the layout is known."""

    def __init__(self, plot: Plot, styles: Mapping[str, LineStyle], axes: _Axes, title: str) -> None:
        self.plot, self.styles, self.axes = plot, styles, axes
        drawn = [self._draw_series(series, index) for index, series in enumerate(plot.series)]
        self.is_empty = not any(drawn)
        if self.is_empty:
            write_nothing_to_draw(axes)
        self._draw_levels()
        self._set_scales()
        self._draw_events()
        self._set_ticks()
        self._draw_breaks()
        self._write_at_rows()
        # The names of thresholds stand between a horizontal plot and its title.
        axes.set_title(typeset(title), pad=6 + LINE_HEIGHT * (plot.horizontal and bool(plot.levels)))
        labels = [typeset(plot.x_label), typeset(plot.y_label)]
        axes.set(xlabel=labels[plot.horizontal], ylabel=labels[not plot.horizontal])
        self.names: list[tuple[float, float, str]] = []
        """Names beside points, and points without a name that no name may cover."""
        self.end_labels = list(self._end_labels())

    def finish(self) -> None:
        """Place the labels beside what they name."""
        place_end_labels(self.axes, self.end_labels)
        for series in () if self.plot.horizontal else self.plot.series:
            named = zip(series.x, series.y, series.names or [""] * len(series.x), strict=True)
            self.names += [(x, y, name) for x, y, name in named if y is not None and self._can_be_drawn(x, y)]
            for ends in (series.low, series.high):
                pairs = zip(series.x, ends, strict=False)
                self.names += [(x, y, "") for x, y in pairs if y is not None and self._can_be_drawn(x, y)]
        if any(name for _, _, name in self.names):
            place_names(self.axes, self.names)

    def _can_be_drawn(self, x: float | None, y: float | None) -> bool:
        return _is_drawable(x, self.plot.x_log) and _is_drawable(y, self.plot.y_log)

    def _shares_rows(self) -> bool:
        """Whether a row of a horizontal plot has marks of several series."""
        rows = [x for series in self.plot.series for x in series.x]
        return self.plot.horizontal and len(set(rows)) < len(rows)

    def _turned(self, x: Any, y: Any) -> tuple[Any, Any]:
        return (y, x) if self.plot.horizontal else (x, y)

    def _draw_series(self, series: Series, index: int) -> bool:
        """Draw the values that can be drawn; returns False if there are none."""
        pairs = zip(series.x, series.y, strict=True)
        kept = [i for i, (x, y) in enumerate(pairs) if self._can_be_drawn(x, y)]
        x: list[float] = [series.x[i] for i in kept]
        y: list[Any] = [series.y[i] for i in kept]
        if series.quiet:
            self.axes.plot(*self._turned(x, y), color=QUIET, linewidth=0.6, zorder=1)
            return bool(kept)
        style = self.styles[series.label]
        if self._shares_rows():
            # Marks of one row lie a little below one another.
            x = [value + (index - (len(self.plot.series) - 1) / 2) * _DODGE / len(self.plot.series) for value in x]
        if series.mark == "bars":
            width = 0.8 / len(self.plot.series)
            x = [value + (index - (len(self.plot.series) - 1) / 2) * width for value in x]
            edge = {"edgecolor": "black", "linewidth": 0.5}
            self.axes.bar(x, y, width, color=style.colour, alpha=0.75, hatch=style.hatch, **edge)
        else:
            line = style.dash if series.mark in ("line", "both") else "none"
            # A long curve has only some markers: enough to identify it without colour.
            step = max(1, len(x) // 6) if (len(x) > 12 and series.mark != "points") or series.mark == "line" else 1
            self.axes.plot(
                *self._turned(x, y),
                color=style.colour,
                linestyle=line,
                marker=style.marker,
                markevery=(index % step, step),
                markersize=NAMED_MARK if series.names else None,
            )
        if series.low and series.high:
            ends = [(at, series.low[i], series.high[i]) for at, i in zip(x, kept, strict=True)]
            self._draw_ranges([end for end in ends if all(self._can_be_drawn(1, e) for e in end[1:])], series, style)
        return bool(kept)

    def _draw_ranges(self, ends: Sequence[tuple[float, Any, Any]], series: Series, style: LineStyle) -> None:
        """Draw the range from low to high: a band around a line, or a bar through a point."""
        if not ends:
            return
        if series.mark == "line":
            self.axes.fill_between(*zip(*ends, strict=True), color=style.colour, alpha=0.18, linewidth=0)
            return
        colour = "black" if series.mark == "bars" else style.colour
        for x, low, high in ends:
            self.axes.plot(*self._turned([x, x], [low, high]), color=colour, linewidth=1.2)

    def _draw_levels(self) -> None:
        draw = self.axes.axvline if self.plot.horizontal else self.axes.axhline
        for name, level in self.plot.levels.items():
            if not _is_drawable(level, self.plot.y_log):
                continue
            draw(level, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
            if self.plot.horizontal:
                self.axes.annotate(
                    typeset(name),
                    (level, 1),
                    xycoords=("data", "axes fraction"),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    color=GREY,
                )

    def _draw_events(self) -> None:
        """Vertical lines, their names one below the other in a space above all values."""
        known = sorted(event for event in self.plot.events if _is_drawable(event[0], self.plot.x_log))
        if not known:
            return
        low, high = self.axes.get_ylim()
        share = (len(known) * LINE_HEIGHT + 4) / (72 * PLOT_HEIGHT)
        if self.plot.y_log and not self.is_empty:
            high *= (high / low) ** (share / (1 - share))
        else:
            high += (high - low) * share / (1 - share)
        self.axes.set_ylim(low, high)
        left, right = self.axes.get_xlim()
        middle = math.sqrt(left * right) if self.plot.x_log and left > 0 else (left + right) / 2
        for row, (x, name) in enumerate(known):
            self.axes.axvline(x, color=GREY, linewidth=0.7, linestyle=(0, (4, 2)), zorder=1)
            is_left = x < middle
            self.axes.annotate(
                typeset(name),
                (x, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3 if is_left else -3, -row * LINE_HEIGHT),
                textcoords="offset points",
                ha="left" if is_left else "right",
                va="top",
                color=GREY,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )

    def _set_scales(self) -> None:
        plot, axes = self.plot, self.axes
        value_axis, place_axis = (axes.xaxis, axes.yaxis) if plot.horizontal else (axes.yaxis, axes.xaxis)
        if any(series.names for series in plot.series) and not plot.horizontal:
            axes.margins(0.12)
        if plot.x_log and not self.is_empty:
            _set_log(axes, place_axis)
        elif _all_whole(x for series in plot.series for x in series.x):
            # Layers, blocks and epochs have no halves.
            place_axis.get_major_locator().set_params(integer=True)
        if plot.y_log and not self.is_empty:
            _set_log(axes, value_axis)
        if plot.y_range is not None:
            (axes.set_xlim if plot.horizontal else axes.set_ylim)(*plot.y_range)

    def _set_ticks(self) -> None:
        plot, axes = self.plot, self.axes
        shown = [(place, typeset(name)) for place, name in enumerate(plot.ticks) if name]
        if not shown:
            return
        places, names = zip(*shown, strict=True)
        if plot.horizontal:
            axes.set_yticks(places, names)
            axes.set_ylim(len(plot.ticks) - 0.5, -0.5)
            axes.grid(axis="y", color="#DDDDDD", linewidth=0.5)
            axes.set_axisbelow(True)
            axes.tick_params(axis="y", length=0)
        else:
            axes.set_xticks(places, names)

    def _draw_breaks(self) -> None:
        """Two slashes across the axis, and a gap in it between them."""
        for x in self.plot.breaks:
            across = {"transform": self.axes.get_xaxis_transform(), "clip_on": False}
            self.axes.plot([x - 0.12, x + 0.12], [0, 0], color="white", linewidth=3, zorder=3, **across)
            slash = {"marker": [(-0.5, -1), (0.5, 1)], "markersize": 8, "linestyle": "none", "color": "black"}
            self.axes.plot([x - 0.12, x + 0.12], [0, 0], zorder=4, **slash, **across)

    def _write_at_rows(self) -> None:
        """The names of a horizontal plot's points, in one column right of the axes."""
        for series in self.plot.series if self.plot.horizontal else ():
            for row, name in zip(series.x, series.names, strict=False):
                place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
                self.axes.annotate(typeset(name), (1, row), xytext=(5, 0), va="center", **place)

    def _end_labels(self) -> Iterable[EndLabel]:
        plot = self.plot
        if plot.horizontal:
            return
        right = self.axes.get_xlim()[1]
        ends: dict[str, list[tuple[float, float]]] = {}
        for series in plot.series if labels_curves(plot) else ():
            known = [
                (x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None and self._can_be_drawn(x, y)
            ]
            if known and not series.quiet and series.mark in ("line", "both"):
                ends.setdefault(series.label, []).append(max(known, key=lambda point: point[0]))
        for name, points in ends.items():
            last = max(points, key=lambda point: point[0])
            if self._share_of_width(last) < _AT_THE_END:
                self.names.append((*last, name))
            else:
                yield end_label(self.axes, name, points, self.styles[name])
        for name, level in plot.levels.items():
            if name and _is_drawable(level, plot.y_log):
                yield end_label(self.axes, name, [(right, level)], None)

    def _share_of_width(self, point: tuple[float, float]) -> float:
        """How far right a point is, from 0 to 1; this does not depend on the layout."""
        x, _ = (self.axes.transData + self.axes.transAxes.inverted()).transform(point)
        return float(x)


def write_nothing_to_draw(axes: _Axes) -> None:
    axes.text(0.5, 0.5, "nothing to draw", transform=axes.transAxes, ha="center", va="center", color=GREY)


def _is_drawable(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not log)


def _all_whole(values: Iterable[float]) -> bool:
    return all(math.isfinite(value) and value == int(value) for value in values)


def _set_log(axes: _Axes, axis: Any) -> None:
    """A logarithmic axis whose powers of ten are text: a raised exponent would be too small to read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    low, high = sorted(axis.get_view_interval())
    if low > 0 and math.log10(high / low) < _FEW_DECADES:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value)))
    axis.set_minor_formatter(NullFormatter())
