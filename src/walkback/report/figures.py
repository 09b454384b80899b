"""Figures drawn with matplotlib in one style: readable in print, in greyscale and with colour blindness."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.report.cells import size
from walkback.report.study_report import CellGrid, Figure, Plot, Series

_Axes = Any
"""matplotlib axes; matplotlib is imported only when a figure is drawn."""

# Okabe and Ito's palette, distinguishable with every common kind of colour vision; each with its own dash and marker.
LINE_STYLES: dict[str, tuple[str, str, str]] = {
    "BP": ("#000000", "-", "o"),
    "FA": ("#0072B2", "--", "s"),
    "DFA": ("#D55E00", "-", "^"),
    "DFA raw": ("#E69F00", "-.", "v"),
    "State Bridge": ("#009E73", ":", "D"),
    "Credit Bridge": ("#CC79A7", "--", "P"),
    "EP": ("#56B4E9", "-.", "X"),
    "EP short": ("#7F7F7F", ":", "*"),
    "null": ("#999999", ":", "."),
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "--", "oo")
LONG_TICKS = 36
"""Total length of tick labels that fit below a plot; longer ones are rotated."""
_GRID_CELLS = {
    "trustworthy": ("#FFFFFF", "", "✓", "trustworthy"),
    "walked_back": ("#D55E00", "//", "✗", "walked back"),
    "inconclusive": ("#DDDDDD", "..", "?", "inconclusive"),
    # The outcome of a single check over seeds.
    "clear": ("#FFFFFF", "", "✓", "passes"),
    "raised": ("#D55E00", "//", "✗", "fails"),
    "open": ("#DDDDDD", "..", "?", "undecided"),
}
"""Fill colour, hatch, symbol and legend text of a grid cell, by its stored word."""
STYLE: dict[str, Any] = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "walkback",
    "pdf.fonttype": 42,
}
_WIDTH, _HEIGHT = 3.4, 2.4
"""Size of one plot in inches."""


@dataclass(frozen=True)
class LineStyle:
    """How a series is drawn; dash, marker and hatch distinguish it without colour."""

    colour: str
    dash: str
    marker: str
    hatch: str


def draw(figure: Figure, form: str) -> bytes:
    """The figure as `svg` or `pdf`; the same values give the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        canvas = canvas_of(figure)
        buffer = io.BytesIO()
        # No date: a figure drawn again from the same numbers is the same file.
        stamp = dict.fromkeys(("Date", "Creator", "Format", "Type") if form == "svg" else ("CreationDate",))
        canvas.savefig(buffer, format=form, metadata=stamp)
    # Without the DOCTYPE, so that programs that read the SVG do not fetch its DTD.
    return re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", buffer.getvalue()) if form == "svg" else buffer.getvalue()


def canvas_of(figure: Figure) -> Any:
    """The figure as a matplotlib figure."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = max(1, min(figure.columns, len(figure.plots)))
    rows = max(1, math.ceil(len(figure.plots) / columns))
    styles = line_styles_of(figure)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
        FigureCanvasAgg(canvas)
        grid = canvas.subplots(rows, columns, squeeze=False).flatten()
        for plot, axes in zip(figure.plots, grid, strict=False):
            if isinstance(plot, CellGrid):
                _draw_grid(plot, axes)
            else:
                _draw_plot(plot, styles, axes)
        for empty in grid[len(figure.plots) :]:
            empty.set_axis_off()
        _draw_legend(figure, styles, canvas)
    return canvas


def line_styles_of(figure: Figure) -> dict[str, LineStyle]:
    """A line style for each label of a figure, the same in all its plots; no two share dash and marker.

    A style in `LINE_STYLES` is used as it is; where two labels have the same style, the second shares only its colour.
    """
    styles = {
        series.label: series.style or series.label
        for plot in figure.plots
        if isinstance(plot, Plot)
        for series in plot.series
    }
    named = dict.fromkeys(LINE_STYLES[style][1:] for style in styles.values() if style in LINE_STYLES)
    spare = (pair for pair in _dash_marker_pairs() if pair not in named)
    found: dict[str, LineStyle] = {}
    used: set[tuple[str, str]] = set()
    for index, (label, style) in enumerate(styles.items()):
        colour, *pair = LINE_STYLES.get(style, (COLOURS[index % len(COLOURS)], "", ""))
        if style not in LINE_STYLES or tuple(pair) in used:
            pair = list(next(spare))
        used.add((pair[0], pair[1]))
        found[label] = LineStyle(colour, pair[0], pair[1], HATCHES[index % len(HATCHES)])
    return found


def _dash_marker_pairs() -> Iterator[tuple[str, str]]:
    """All pairs of dash and marker, repeated for ever; both change at every step."""
    while True:
        for turn in range(len(DASHES)):
            for index, marker in enumerate(MARKERS):
                yield DASHES[(index + turn) % len(DASHES)], marker


def _draw_plot(plot: Plot, styles: Mapping[str, LineStyle], axes: _Axes) -> None:
    drawn = [_draw_series(series, index, plot, styles[series.label], axes) for index, series in enumerate(plot.series)]
    if not any(drawn):
        _write_nothing_to_draw(axes)
    for name, level in plot.levels.items():
        if not _can_be_drawn(level, plot.y_log):
            continue
        axes.axhline(level, color="#555555", linewidth=0.8, linestyle=(0, (1, 2)))
        axes.annotate(
            name, (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6.5, color="#555555"
        )
    for x, name in plot.events:
        if not _can_be_drawn(x, plot.x_log):
            continue
        axes.axvline(x, color="#555555", linewidth=0.7, linestyle=(0, (4, 2)))
        axes.annotate(name, (x, 1), xycoords=("data", "axes fraction"), fontsize=6.5, rotation=90, va="top", ha="right")
    if plot.x_log and any(drawn):
        axes.set_xscale("log")
        _plain_powers(axes.xaxis)
    elif _all_whole(x for series in plot.series for x in series.x):
        # Layers, blocks and epochs have no halves.
        axes.xaxis.get_major_locator().set_params(integer=True)
    if plot.y_log and any(drawn):
        axes.set_yscale("log")
        _plain_powers(axes.yaxis)
    if plot.ticks:
        rotated = {"rotation": 30, "ha": "right"} if sum(map(len, plot.ticks)) > LONG_TICKS else {}
        axes.set_xticks(range(len(plot.ticks)), plot.ticks, **rotated)
    axes.set_title(plot.title)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)


def _all_whole(values: Iterable[float]) -> bool:
    return all(math.isfinite(value) and value == int(value) for value in values)


def _plain_powers(axis: Any) -> None:
    """Write 1e-7 along an axis: a superscript exponent would be too small to read."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
    axis.set_minor_formatter(NullFormatter())


def _write_nothing_to_draw(axes: _Axes) -> None:
    axes.text(0.5, 0.5, "nothing to draw", transform=axes.transAxes, ha="center", va="center", color="#555555")


def _draw_series(series: Series, index: int, plot: Plot, line_style: LineStyle, axes: _Axes) -> bool:
    """Draw the values that can be drawn; returns False if there are none."""
    kept = [
        i
        for i, (x, y) in enumerate(zip(series.x, series.y, strict=True))
        if _can_be_drawn(x, plot.x_log) and _can_be_drawn(y, plot.y_log)
    ]
    x: list[float] = [series.x[i] for i in kept]
    y = [series.y[i] for i in kept]
    if series.mark == "bars":
        width = 0.8 / len(plot.series)
        x = [value + (index - (len(plot.series) - 1) / 2) * width for value in x]
        edge = {"edgecolor": "black", "linewidth": 0.5}
        axes.bar(x, y, width, color=line_style.colour, alpha=0.75, hatch=line_style.hatch, **edge)
    else:
        line = line_style.dash if series.mark in ("line", "both") else "none"
        # A long curve has only some markers: enough to identify it without colour.
        step = max(1, len(x) // 6) if series.mark == "line" else 1
        axes.plot(
            x, y, color=line_style.colour, linestyle=line, marker=line_style.marker, markevery=(index % step, step)
        )
    if series.low and series.high:
        ends = [(at, series.low[i], series.high[i]) for at, i in zip(x, kept, strict=True)]
        _draw_ranges(
            [end for end in ends if all(_can_be_drawn(value, plot.y_log) for value in end[1:])],
            series,
            line_style,
            axes,
        )
    return bool(kept)


def _draw_ranges(ends: Sequence[tuple[float, Any, Any]], series: Series, line_style: LineStyle, axes: _Axes) -> None:
    """Draw the range from low to high: a band around a line, or a bar through a point."""
    if not ends:
        return
    if series.mark == "line":
        axes.fill_between(*zip(*ends, strict=True), color=line_style.colour, alpha=0.18, linewidth=0)
        return
    for x, low, high in ends:
        axes.plot([x, x], [low, high], color="black", linewidth=0.9)


def _can_be_drawn(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not log)


def _draw_grid(grid: CellGrid, axes: _Axes) -> None:
    from matplotlib.patches import Rectangle

    axes.set_title(grid.title)
    if not grid.rows or not grid.columns:
        _write_nothing_to_draw(axes)
        return
    for row, words in enumerate(grid.cells):
        for column, word in enumerate(words):
            colour, hatch, symbol, _ = _GRID_CELLS.get(word, ("#FFFFFF", "", word, word))
            box = Rectangle((column, row), 1, 1, facecolor=colour, hatch=hatch, edgecolor="#666666", linewidth=0.5)
            axes.add_patch(box)
            axes.text(column + 0.5, row + 0.5, symbol, ha="center", va="center", fontsize=8)
    axes.set_xlim(0, len(grid.columns))
    axes.set_ylim(len(grid.rows), 0)
    axes.set_xticks([i + 0.5 for i in range(len(grid.columns))], grid.columns, rotation=40, ha="right")
    axes.set_yticks([i + 0.5 for i in range(len(grid.rows))], grid.rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_legend(figure: Figure, styles: Mapping[str, LineStyle], canvas: Any) -> None:
    """One legend below all plots, each label once."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: dict[str, Any] = {}
    for plot in figure.plots:
        if isinstance(plot, CellGrid):
            words = {word for row in plot.cells for word in row}
            for word, (colour, hatch, symbol, text) in _GRID_CELLS.items():
                label = f"{symbol} {text}"
                if word in words:
                    handles.setdefault(label, Patch(facecolor=colour, hatch=hatch, edgecolor="#666666", label=label))
            continue
        for series in plot.series:
            line_style = styles[series.label]
            if series.mark == "bars":
                edge: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.5}
                handle: Any = Patch(
                    facecolor=line_style.colour, alpha=0.75, hatch=line_style.hatch, label=series.label, **edge
                )
            else:
                line = line_style.dash if series.mark in ("line", "both") else "none"
                handle = Line2D(
                    [], [], color=line_style.colour, linestyle=line, marker=line_style.marker, label=series.label
                )
            handles.setdefault(series.label, handle)
    if handles:
        canvas.legend(handles=list(handles.values()), loc="outside lower center", ncols=min(4, len(handles)))
