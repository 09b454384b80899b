"""Figures drawn with matplotlib in one style: readable in print, in greyscale and with colour blindness.

A figure has its title in it and a white ground of its own, so that it can stand alone on a page of any colour.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.report.figure_grids import CELL_HEIGHT, CELL_WIDTH, broken, draw_grid, grid_handles
from walkback.report.figure_plots import NAMED_MARK, PLOT_HEIGHT, DrawnPlot, labels_curves, names_beside
from walkback.report.figure_styles import LineStyle, line_styles_of
from walkback.report.figure_text import SIZE, typeset, width_of, wrapped
from walkback.report.study_report import CellGrid, Figure, Plot, Series

STYLE: dict[str, Any] = {
    "font.size": SIZE,
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": SIZE,
    "axes.titlelocation": "left",
    "axes.labelsize": SIZE,
    "figure.titlesize": SIZE + 2,
    "figure.titleweight": "bold",
    "legend.fontsize": SIZE,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "svg.fonttype": "none",
    "svg.hashsalt": "walkback",
    "pdf.fonttype": 42,
}
_PLOT_WIDTH = 2.5
"""Width of axes in inches."""
_ROW = 0.2
"""Height of a row of a horizontal plot in inches."""
_LEAST_WIDTH = 5.0
"""Width in inches below which a title would need many lines."""
_TITLE_LETTER = 1.35
"""Width of a letter of the figure's title, in letters of ordinary text."""


def draw(figure: Figure, form: str) -> bytes:
    """The figure as `svg` or `pdf`; the same values give the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        canvas = canvas_of(figure)
        buffer = io.BytesIO()
        # No date: a figure drawn again from the same numbers is the same file.
        stamp = dict.fromkeys(("Date", "Creator", "Format", "Type") if form == "svg" else ("CreationDate",))
        canvas.savefig(buffer, format=form, metadata=stamp)
    return _for_browsers(buffer.getvalue()) if form == "svg" else buffer.getvalue()


def _for_browsers(drawing: bytes) -> bytes:
    """The SVG without the DOCTYPE, so that readers do not fetch its DTD, and with fonts for those without DejaVu."""
    drawing = re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", drawing)
    return drawing.replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif")


@dataclass(frozen=True)
class _Size:
    """What a plot needs in inches: its axes, and the space around them."""

    width: float
    height: float
    left: float
    right: float
    above: float
    below: float
    has_ticks: bool = True
    """Whether the names of its rows are shown: not where the plot to its left has the same."""


def canvas_of(figure: Figure) -> Any:
    """The figure as a matplotlib figure."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = max(1, min(figure.columns, len(figure.plots)))
    rows = max(1, math.ceil(len(figure.plots) / columns))
    styles = line_styles_of(figure)
    sizes = [
        _size_of(plot, figure.plots[i - 1] if i % columns else None, figure.zoom) for i, plot in enumerate(figure.plots)
    ]
    by_column = [sizes[i::columns] or [_NO_PLOT] for i in range(columns)]
    by_row = [sizes[i * columns : (i + 1) * columns] or [_NO_PLOT] for i in range(rows)]
    inner = [max(size.width for size in part) for part in by_column]
    around = [max(size.left for size in part) + max(size.right for size in part) for part in by_column]
    width = max(_LEAST_WIDTH, sum(inner) + sum(around))
    heights = [max(size.height for size in part) for part in by_row]
    over_and_under = [max(size.above for size in part) + max(size.below for size in part) for part in by_row]
    title = wrapped(figure.title, width / _TITLE_LETTER)
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
        canvas = Canvas(figsize=(width, sum(heights) + sum(over_and_under)), dpi=72, layout=layout)
        FigureCanvasAgg(canvas)
        ratios = {"width_ratios": inner, "height_ratios": heights}
        grid = canvas.subplots(rows, columns, squeeze=False, gridspec_kw=ratios).flatten()
        drawn = []
        for plot, size, axes in zip(figure.plots, sizes, grid, strict=False):
            # Explicit, since the number of ticks depends on it when the figure is drawn later in another style.
            axes.tick_params(labelsize=SIZE)
            plot_title = wrapped(plot.title, size.width + size.right)
            if isinstance(plot, CellGrid):
                draw_grid(plot, axes, plot_title)
            else:
                drawn.append(DrawnPlot(plot, styles, axes, plot_title))
            if not size.has_ticks:
                axes.tick_params(axis="y", labelleft=False)
        for empty in grid[len(figure.plots) :]:
            empty.set_axis_off()
        canvas.suptitle(typeset(title), x=0.08 / width, ha="left")
        legend_height = _draw_legend(figure, styles, canvas)
        added = 0.19 * (title.count("\n") + 1) + 0.08 + legend_height
        canvas.set_size_inches(width, canvas.get_figheight() + added)
        # Twice: the first layout may change the ticks, and with them the space that they need.
        canvas.draw_without_rendering()
        canvas.draw_without_rendering()
        # The labels below depend on the layout, and must not change it.
        canvas.set_layout_engine("none")
        for axes in canvas.axes:
            # The layout's solver leaves noise in the last digits, which names in the file would depend on.
            left, bottom, width_shared, height_shared = (round(value, 6) for value in axes.get_position().bounds)
            axes.set_position((left, bottom, width_shared, height_shared))
        for each in drawn:
            each.finish()
    return canvas


_NO_PLOT = _Size(_PLOT_WIDTH, PLOT_HEIGHT, 0, 0, 0, 0)


def _size_of(plot: Plot | CellGrid, before: Plot | CellGrid | None, zoom: float) -> _Size:
    above = 0.28
    if isinstance(plot, CellGrid):
        has_ticks = not (isinstance(before, CellGrid) and before.rows == plot.rows)
        left = max(map(width_of, plot.rows), default=0) + 0.15 if has_ticks else 0.15
        widest = max((width_of(broken(name)) + 0.1 for name in plot.columns), default=0)
        below = 0.15 * max((name.count(" ") + 1 for name in plot.columns), default=0) + 0.15
        width = max(CELL_WIDTH, widest) * max(1, len(plot.columns))
        return _Size(width, CELL_HEIGHT * max(1, len(plot.rows)), left, 0.1, above, below, has_ticks)
    if plot.horizontal:
        has_ticks = not (isinstance(before, Plot) and before.ticks == plot.ticks)
        left = max(map(width_of, plot.ticks), default=0) + 0.15 if has_ticks else 0.15
        right = max((width_of(name) for series in plot.series for name in series.names), default=0) + 0.1
        return _Size(1.9 * zoom, _ROW * zoom * max(4, len(plot.ticks)), left, right, above + 0.15, 0.5, has_ticks)
    right = max(map(width_of, names_beside(plot)), default=0) + 0.2
    ticks = sum(max(map(width_of, name.split("\n"))) + 0.1 for name in plot.ticks)
    return _Size(max(_PLOT_WIDTH * zoom, ticks), PLOT_HEIGHT * zoom, 0.75, right, above, 0.5)


def _draw_legend(figure: Figure, styles: Mapping[str, LineStyle], canvas: Any) -> float:
    """One legend below all plots, with each label once that is not beside its curve; returns its height in inches."""
    handles: dict[str, Any] = {}
    for plot in figure.plots:
        if isinstance(plot, CellGrid):
            for label, handle in grid_handles(plot):
                handles.setdefault(label, handle)
        elif not labels_curves(plot):
            for series in plot.series:
                if series.label and not series.quiet:
                    handles.setdefault(series.label, _handle(series, styles[series.label]))
    if not handles:
        return 0.0
    columns = _columns_that_fit([0.45 + width_of(label) for label in handles], canvas.get_figwidth() - 0.2)
    canvas.legend(
        handles=list(handles.values()), loc="outside lower left", ncols=columns, columnspacing=1.2, handlelength=1.8
    )
    return 0.2 * math.ceil(len(handles) / columns) + 0.1


def _columns_that_fit(widths: Sequence[float], width: float) -> int:
    """The largest number of columns of a legend with entries of these widths, filled column by column."""
    for columns in range(len(widths), 1, -1):
        rows = math.ceil(len(widths) / columns)
        parts = [widths[i : i + rows] for i in range(0, len(widths), rows)]
        if sum(max(part) for part in parts) <= width:
            return columns
    return 1


def _handle(series: Series, style: LineStyle) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    label = typeset(series.label)
    if series.mark == "bars":
        edge: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.5}
        return Patch(facecolor=style.colour, alpha=0.75, hatch=style.hatch, label=label, **edge)
    line = style.dash if series.mark in ("line", "both") else "none"
    size = NAMED_MARK if series.names else None
    return Line2D([], [], color=style.colour, linestyle=line, marker=style.marker, markersize=size, label=label)
