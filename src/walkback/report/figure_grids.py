"""A grid of words, such as verdicts: each cell has a symbol and a colour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from walkback.report.figure_plots import write_nothing_to_draw
from walkback.report.figure_text import typeset, wrapped
from walkback.report.study_report import CellGrid

CELL_WORDS = {
    "trustworthy": ("#FFFFFF", "✓", "trustworthy"),
    "walked_back": ("#F3B58F", "✗", "walked back"),
    "inconclusive": ("#DDDDDD", "?", "inconclusive"),
    # The outcome of a single check over seeds.
    "clear": ("#FFFFFF", "✓", "passes"),
    "raised": ("#F3B58F", "✗", "fails"),
    "open": ("#DDDDDD", "?", "undecided"),
}
"""Fill colour, symbol and legend text of a grid cell, by its stored word."""
CELL_WIDTH, CELL_HEIGHT = 0.62, 0.26
"""Size of a cell in inches."""
_EDGE = "#888888"


def draw_grid(grid: CellGrid, axes: Any, title: str) -> None:
    """Draw the cells, with the columns' names below and the rows' names on the left."""
    from matplotlib.patches import Rectangle

    axes.set_title(typeset(title))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if not grid.rows or not grid.columns:
        write_nothing_to_draw(axes)
        return
    for row, words in enumerate(grid.cells):
        for column, word in enumerate(words):
            colour, symbol, _ = CELL_WORDS.get(word, ("#FFFFFF", word, word))
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=_EDGE, linewidth=0.5))
            axes.text(column + 0.5, row + 0.5, symbol, ha="center", va="center")
    axes.set_xlim(0, len(grid.columns))
    axes.set_ylim(len(grid.rows), 0)
    axes.set_xticks([i + 0.5 for i in range(len(grid.columns))], [typeset(broken(name)) for name in grid.columns])
    axes.set_yticks([i + 0.5 for i in range(len(grid.rows))], [typeset(name) for name in grid.rows])


def broken(name: str) -> str:
    """A column's name in lines that are little wider than a cell."""
    return wrapped(name, 1.3 * CELL_WIDTH)


def grid_handles(grid: CellGrid) -> Iterator[tuple[str, Any]]:
    """What the legend shows of a grid: label and handle of each known word in it."""
    from matplotlib.patches import Patch

    words = {word for row in grid.cells for word in row}
    for word, (colour, symbol, text) in CELL_WORDS.items():
        label = f"{symbol} {text}"
        if word in words:
            yield label, Patch(facecolor=colour, edgecolor=_EDGE, label=label)
