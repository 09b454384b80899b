"""Figures drawn by matplotlib, all in one style: readable in print, in grey and by a colour-blind reader."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from walkback.render.story import Figure, Grid, Plot, Series

Axes = Any
"""matplotlib is imported when something is drawn."""

# Okabe and Ito's palette, told apart by every common kind of colour vision; each with its own dash and marker too.
LOOKS: dict[str, tuple[str, str, str]] = {
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
SPARE = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", "-", "v"),
    ("#56B4E9", "--", "P"),
    ("#000000", "-.", "X"),
    ("#7F7F7F", ":", "*"),
)
VERDICTS = {
    "trustworthy": ("#FFFFFF", "", "✓"),
    "walked_back": ("#D55E00", "//", "✗"),
    "inconclusive": ("#DDDDDD", "..", "?"),
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
WIDTH, HEIGHT = 3.4, 2.4
"""Inches of one plot."""


def draw(figure: Figure, form: str) -> bytes:
    """The figure as `svg` or `pdf`; the same values give the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.plots))
    rows = math.ceil(len(figure.plots) / columns)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        FigureCanvasAgg(canvas)
        axes = canvas.subplots(rows, columns, squeeze=False).flatten()
        for plot, where in zip(figure.plots, axes, strict=False):
            if isinstance(plot, Grid):
                _grid(plot, where)
            else:
                _plot(plot, where)
        for empty in axes[len(figure.plots) :]:
            empty.set_axis_off()
        _legend(figure, canvas)
        buffer = io.BytesIO()
        # No date: a figure drawn again from the same numbers is the same file.
        stamp = {"Date": None} if form == "svg" else {"CreationDate": None}
        canvas.savefig(buffer, format=form, metadata=stamp)
    return buffer.getvalue()


def _plot(plot: Plot, where: Axes) -> None:
    for index, series in enumerate(plot.series):
        _series(series, index, len(plot.series), where)
    for name, level in plot.levels.items():
        where.axhline(level, color="#555555", linewidth=0.8, linestyle=(0, (1, 2)))
        where.annotate(
            name, (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6.5, color="#555555"
        )
    for x, name in plot.events:
        where.axvline(x, color="#555555", linewidth=0.7, linestyle=(0, (4, 2)))
        where.annotate(
            name, (x, 1), xycoords=("data", "axes fraction"), fontsize=6.5, rotation=90, va="top", ha="right"
        )
    if plot.x_log:
        where.set_xscale("log")
    if plot.y_log:
        where.set_yscale("log")
    if plot.ticks:
        where.set_xticks(range(len(plot.ticks)), plot.ticks)
    where.set_title(plot.title)
    where.set_xlabel(plot.x_label)
    where.set_ylabel(plot.y_label)


def _series(series: Series, index: int, count: int, where: Axes) -> None:
    colour, dash, marker = _look(series, index)
    kept = [i for i, value in enumerate(series.y) if value is not None and math.isfinite(value)]
    x, y = [series.x[i] for i in kept], [series.y[i] for i in kept]
    ends = [[ends[i] for i in kept] for ends in (series.low, series.high)] if series.low and series.high else None
    if series.mark == "bars":
        width = 0.8 / count
        places = [value + (index - (count - 1) / 2) * width for value in x]
        hatch = ("", "//", "..", "xx", "\\\\", "++", "--", "oo")[index % 8]
        where.bar(places, y, width, color=colour, alpha=0.75, edgecolor="black", linewidth=0.5, hatch=hatch)
        x = places
    else:
        line = dash if series.mark in ("line", "both") else "none"
        dots = marker if series.mark in ("points", "both") else "none"
        where.plot(x, y, color=colour, linestyle=line, marker=dots)
    if ends and series.mark == "line":
        where.fill_between(x, *ends, color=colour, alpha=0.18, linewidth=0)
    elif ends:
        for place, low, high in zip(x, *ends, strict=True):
            where.plot([place, place], [low, high], color="black", linewidth=0.9)


def _grid(grid: Grid, where: Axes) -> None:
    from matplotlib.patches import Rectangle

    for row, words in enumerate(grid.cells):
        for column, word in enumerate(words):
            colour, hatch, sign = VERDICTS.get(word, ("#FFFFFF", "", word))
            box = Rectangle((column, row), 1, 1, facecolor=colour, hatch=hatch, edgecolor="#666666", linewidth=0.5)
            where.add_patch(box)
            where.text(column + 0.5, row + 0.5, sign, ha="center", va="center", fontsize=8)
    where.set_xlim(0, len(grid.columns))
    where.set_ylim(len(grid.rows), 0)
    where.set_xticks([i + 0.5 for i in range(len(grid.columns))], grid.columns, rotation=40, ha="right")
    where.set_yticks([i + 0.5 for i in range(len(grid.rows))], grid.rows)
    where.tick_params(length=0)
    where.spines[:].set_visible(False)
    where.set_title(grid.title)


def _legend(figure: Figure, canvas: Any) -> None:
    """One legend below all plots, each label once."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: dict[str, Any] = {}
    for plot in figure.plots:
        if isinstance(plot, Grid):
            for word, (colour, hatch, sign) in VERDICTS.items():
                label = f"{sign} {word.replace('_', ' ')}"
                handles.setdefault(label, Patch(facecolor=colour, hatch=hatch, edgecolor="#666666", label=label))
            continue
        for index, series in enumerate(plot.series):
            colour, dash, marker = _look(series, index)
            dots = "none" if series.mark == "line" else marker
            line = dash if series.mark in ("line", "both") else "none"
            made = Line2D([], [], color=colour, linestyle=line, marker=dots, label=series.label)
            handles.setdefault(series.label, made)
    if handles:
        canvas.legend(handles=list(handles.values()), loc="outside lower center", ncols=min(4, len(handles)))


def _look(series: Series, index: int) -> tuple[str, str, str]:
    return LOOKS.get(series.style or series.label, SPARE[index % len(SPARE)])


def in_order(values: Sequence[str]) -> list[str]:
    """Methods in the order of the style's list, others after them."""
    known = list(LOOKS)
    return sorted(values, key=lambda value: (known.index(value) if value in known else len(known), value))
