"""Captions that say what the checks' codes in a figure mean."""

from __future__ import annotations

from dataclasses import replace

from walkback.report.study_report import CellGrid, Figure

CHECK_MEANINGS = {
    "D1": "the hidden states grow from block to block",
    "D2": "the reference gradient ‖g_L‖ is under its floor",
    "D3": "trained blocks are no better than frozen ones",
}
"""What it means that a check fails."""


def with_checks_explained(figure: Figure) -> Figure:
    """The figure whose caption says what D1, D2 and D3 mean, as far as its labels use them and do not say so."""
    labels = _labels_of(figure)
    used = [
        f"{code}: {meaning}"
        for code, meaning in CHECK_MEANINGS.items()
        if any(code in label for label in labels)
        and not any(f"{code}: " in text or f"({code})" in text for text in (*labels, figure.caption))
    ]
    return replace(figure, caption=f"{figure.caption} {'; '.join(used)}.") if used else figure


def _labels_of(figure: Figure) -> list[str]:
    """Every text that is drawn."""
    labels = [figure.title]
    for plot in figure.plots:
        if isinstance(plot, CellGrid):
            labels += [plot.title, *plot.rows, *plot.columns]
        else:
            labels += [plot.title, plot.x_label, plot.y_label, *plot.ticks, *plot.levels]
            labels += [*(series.label for series in plot.series), *(name for _, name in plot.events)]
    return labels
