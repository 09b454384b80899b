"""The texts of a drawn figure and the boxes that they cover."""

from __future__ import annotations

import re
from itertools import combinations
from unittest.mock import patch

from matplotlib.text import Text

from walkback.report.figure_labels import Box, overlap
from walkback.report.figures import canvas_of
from walkback.report.study_report import CellGrid, Figure


def drawn_texts(figure: Figure) -> list[tuple[str, Box]]:
    """Every text that is drawn, with its box in points; and the box of the whole figure, without a text."""
    canvas = canvas_of(figure)
    found: list[tuple[str, Box]] = [("", (0.0, 0.0, *canvas.bbox.size))]
    draw = Text.draw

    def recording(self, renderer, *args, **kwargs):
        if self.get_visible() and self.get_text().strip():
            found.append((self.get_text(), self.get_window_extent(renderer).extents))
        return draw(self, renderer, *args, **kwargs)

    with patch.object(Text, "draw", recording):
        canvas.canvas.draw()
    return found


def faults_of(figure: Figure, slack: float = 1.0) -> list[str]:
    """Texts that cover one another or are cut off at the figure's edge, by more than `slack` points."""
    (_, (_, _, width, height)), *texts = drawn_texts(figure)
    covered = [f"{a!r} and {b!r}" for (a, one), (b, other) in combinations(texts, 2) if overlap(one, other, slack)]
    cut = [
        f"{text!r} is cut off"
        for text, (left, bottom, right, top) in texts
        if min(left, bottom, width - right, height - top) < -slack
    ]
    return covered + cut


_CODE = re.compile(r"(?<![\w(])(?:[ADS]\d(?!\d)|\+\([a-d]\))")


def unexplained_codes(figure: Figure) -> set[str]:
    """Codes such as D2 or S0 in the figure's labels that neither the figure nor its caption says the meaning of."""
    labels = [figure.title]
    for plot in figure.plots:
        if isinstance(plot, CellGrid):
            labels += [plot.title, *plot.rows, *plot.columns]
        else:
            labels += [plot.title, plot.x_label, plot.y_label, *plot.ticks, *plot.levels]
            labels += [*(series.label for series in plot.series), *(name for _, name in plot.events)]
    words = [*labels, figure.caption]
    codes = {code for label in labels for code in _CODE.findall(label)}
    return {code for code in codes if not any(f"{code}: " in text or f"({code})" in text for text in words)}
