"""Figures drawn by matplotlib, all in one style: readable in print, in grey and by a colour-blind reader."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.report.cells import size
from walkback.report.study_report import CellGrid, Figure, Plot, Series

_Axes = Any
"""matplotlib is imported when something is drawn."""

# Okabe and Ito's palette, told apart by every common kind of colour vision; each with its own dash and marker too.
LINE_STYLES: dict[str, tuple[str, str, str]] = {
    "BP": ("#000000", "-", "o"),
    "FA": ("#0072B2", "--", "s"),
    "DFA": ("#D55E00", "-", "^"),
    "DFA raw": ("#E69F00", "-.", "v"),
    "State Bridge": ("#009E73", ":", "D"),
    "Credit Bridge": ("#CC79A7", "--", "P"),
    "EP": ("#56B4E9", "-.", "X"),
    "EP short": ("#7F7F7F", ":", "*"),
    "shell": ("#999999", ":", "."),
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "--", "oo")
LONG_TICKS = 36
"""Letters that fit below a plot side by side; more are written aslant."""
_VERDICTS = {
    "trustworthy": ("#FFFFFF", "", "✓"),
    "walked_back": ("#D55E00", "//", "✗"),
    "inconclusive": ("#DDDDDD", "..", "?"),
    # The same looks for single flags, over seeds.
    "clear": ("#FFFFFF", "", "✓"),
    "raised": ("#D55E00", "//", "✗"),
    "open": ("#DDDDDD", "..", "?"),
}
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
"""Inches of one plot."""


@dataclass(frozen=True)
class LineStyle:
    """How a series is drawn: in colour, and told apart without it."""

    colour: str
    dash: str
    marker: str
    hatch: str


def draw(figure: Figure, form: str) -> bytes:
    """The figure as `svg` or `pdf`; the same values give the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = max(1, min(figure.columns, len(figure.plots)))
    rows = max(1, math.ceil(len(figure.plots) / columns))
    looks = line_styles_of(figure)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
        FigureCanvasAgg(canvas)
        axes = canvas.subplots(rows, columns, squeeze=False).flatten()
        for plot, where in zip(figure.plots, axes, strict=False):
            if isinstance(plot, CellGrid):
                _grid(plot, where)
            else:
                _plot(plot, looks, where)
        for empty in axes[len(figure.plots) :]:
            empty.set_axis_off()
        _legend(figure, looks, canvas)
        buffer = io.BytesIO()
        # No date: a figure drawn again from the same numbers is the same file.
        stamp = dict.fromkeys(("Date", "Creator", "Format", "Type") if form == "svg" else ("CreationDate",))
        canvas.savefig(buffer, format=form, metadata=stamp)
    # A drawing is read by programs that must not fetch its grammar from elsewhere.
    return re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", buffer.getvalue()) if form == "svg" else buffer.getvalue()


def line_styles_of(figure: Figure) -> dict[str, LineStyle]:
    """A look for each label of a figure, the same in all its plots; no two have the same dash and marker.

    A style of the list keeps its looks; where two labels ask for the same one, the second has its colour only.
    """
    styles = {
        series.label: series.style or series.label
        for plot in figure.plots
        if isinstance(plot, Plot)
        for series in plot.series
    }
    named = dict.fromkeys(LINE_STYLES[style][1:] for style in styles.values() if style in LINE_STYLES)
    spare = (pair for pair in _pairs() if pair not in named)
    found: dict[str, LineStyle] = {}
    taken: set[tuple[str, str]] = set()
    for index, (label, style) in enumerate(styles.items()):
        colour, *pair = LINE_STYLES.get(style, (COLOURS[index % len(COLOURS)], "", ""))
        if style not in LINE_STYLES or tuple(pair) in taken:
            pair = list(next(spare))
        taken.add((pair[0], pair[1]))
        found[label] = LineStyle(colour, pair[0], pair[1], HATCHES[index % len(HATCHES)])
    return found


def _pairs() -> Iterator[tuple[str, str]]:
    """Dashes and markers: both change at every step, until all pairs were given; then from the start."""
    while True:
        for turn in range(len(DASHES)):
            for index, marker in enumerate(MARKERS):
                yield DASHES[(index + turn) % len(DASHES)], marker


def _plot(plot: Plot, looks: Mapping[str, LineStyle], where: _Axes) -> None:
    drawn = [_series(series, index, plot, looks[series.label], where) for index, series in enumerate(plot.series)]
    if not any(drawn):
        _say_nothing(where)
    for name, level in plot.levels.items():
        if not _can_be_drawn(level, plot.y_log):
            continue
        where.axhline(level, color="#555555", linewidth=0.8, linestyle=(0, (1, 2)))
        where.annotate(
            name, (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6.5, color="#555555"
        )
    for x, name in plot.events:
        if not _can_be_drawn(x, plot.x_log):
            continue
        where.axvline(x, color="#555555", linewidth=0.7, linestyle=(0, (4, 2)))
        where.annotate(
            name, (x, 1), xycoords=("data", "axes fraction"), fontsize=6.5, rotation=90, va="top", ha="right"
        )
    if plot.x_log and any(drawn):
        where.set_xscale("log")
        _plain_powers(where.xaxis)
    if plot.y_log and any(drawn):
        where.set_yscale("log")
        _plain_powers(where.yaxis)
    if plot.ticks:
        aslant = {"rotation": 30, "ha": "right"} if sum(map(len, plot.ticks)) > LONG_TICKS else {}
        where.set_xticks(range(len(plot.ticks)), plot.ticks, **aslant)
    where.set_title(plot.title)
    where.set_xlabel(plot.x_label)
    where.set_ylabel(plot.y_label)


def _plain_powers(axis: Any) -> None:
    """1e-7 along an axis in place of a raised -7, which would be too small to read."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
    axis.set_minor_formatter(NullFormatter())


def _say_nothing(where: _Axes) -> None:
    where.text(0.5, 0.5, "nothing to draw", transform=where.transAxes, ha="center", va="center", color="#555555")


def _series(series: Series, index: int, plot: Plot, look: LineStyle, where: _Axes) -> bool:
    """Draw what can be drawn; False where that is nothing."""
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
        where.bar(x, y, width, color=look.colour, alpha=0.75, hatch=look.hatch, **edge)
    else:
        line = look.dash if series.mark in ("line", "both") else "none"
        # A curve of many points has a marker here and there: enough to know it by, without colour too.
        step = max(1, len(x) // 6) if series.mark == "line" else 1
        where.plot(x, y, color=look.colour, linestyle=line, marker=look.marker, markevery=(index % step, step))
    if series.low and series.high:
        ends = [(place, series.low[i], series.high[i]) for place, i in zip(x, kept, strict=True)]
        _ends([end for end in ends if all(_can_be_drawn(value, plot.y_log) for value in end[1:])], series, look, where)
    return bool(kept)


def _ends(ends: Sequence[tuple[float, Any, Any]], series: Series, look: LineStyle, where: _Axes) -> None:
    """A band around a line, or a bar through a point."""
    if not ends:
        return
    if series.mark == "line":
        where.fill_between(*zip(*ends, strict=True), color=look.colour, alpha=0.18, linewidth=0)
        return
    for place, low, high in ends:
        where.plot([place, place], [low, high], color="black", linewidth=0.9)


def _can_be_drawn(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not log)


def _grid(grid: CellGrid, where: _Axes) -> None:
    from matplotlib.patches import Rectangle

    where.set_title(grid.title)
    if not grid.rows or not grid.columns:
        _say_nothing(where)
        return
    for row, words in enumerate(grid.cells):
        for column, word in enumerate(words):
            colour, hatch, sign = _VERDICTS.get(word, ("#FFFFFF", "", word))
            box = Rectangle((column, row), 1, 1, facecolor=colour, hatch=hatch, edgecolor="#666666", linewidth=0.5)
            where.add_patch(box)
            where.text(column + 0.5, row + 0.5, sign, ha="center", va="center", fontsize=8)
    where.set_xlim(0, len(grid.columns))
    where.set_ylim(len(grid.rows), 0)
    where.set_xticks([i + 0.5 for i in range(len(grid.columns))], grid.columns, rotation=40, ha="right")
    where.set_yticks([i + 0.5 for i in range(len(grid.rows))], grid.rows)
    where.tick_params(length=0)
    where.spines[:].set_visible(False)


def _legend(figure: Figure, looks: Mapping[str, LineStyle], canvas: Any) -> None:
    """One legend below all plots, each label once."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: dict[str, Any] = {}
    for plot in figure.plots:
        if isinstance(plot, CellGrid):
            words = {word for row in plot.cells for word in row}
            for word, (colour, hatch, sign) in _VERDICTS.items():
                label = f"{sign} {word.replace('_', ' ')}"
                if word in words:
                    handles.setdefault(label, Patch(facecolor=colour, hatch=hatch, edgecolor="#666666", label=label))
            continue
        for series in plot.series:
            look = looks[series.label]
            if series.mark == "bars":
                edge: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.5}
                made: Any = Patch(facecolor=look.colour, alpha=0.75, hatch=look.hatch, label=series.label, **edge)
            else:
                line = look.dash if series.mark in ("line", "both") else "none"
                made = Line2D([], [], color=look.colour, linestyle=line, marker=look.marker, label=series.label)
            handles.setdefault(series.label, made)
    if handles:
        canvas.legend(handles=list(handles.values()), loc="outside lower center", ncols=min(4, len(handles)))


def in_order(values: Sequence[str]) -> list[str]:
    """Methods in the order of the style's list, others after them."""
    known = list(LINE_STYLES)
    return sorted(values, key=lambda value: (known.index(value) if value in known else len(known), value))
