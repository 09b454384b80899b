"""Colours, dashes, markers and hatches of figures; series differ without colour, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from walkback.report.study_report import Figure, Plot

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
    # The outcome of a claim.
    "stands": ("#0072B2", "-", "o"),
    "walked back": ("#D55E00", "--", "X"),
    "undecided": ("#7F7F7F", ":", "D"),
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "--", "oo")
QUIET = "#AAAAAA"
"""Colour of lines in the background."""
GREY = "#555555"
"""Colour of thresholds and their names."""


@dataclass(frozen=True)
class LineStyle:
    """How a series is drawn; dash, marker and hatch distinguish it without colour."""

    colour: str
    dash: str
    marker: str
    hatch: str


def line_styles_of(figure: Figure) -> dict[str, LineStyle]:
    """A line style for each label of a figure, the same in all its plots; no two share dash and marker.

    A style in `LINE_STYLES` is used as it is; where two labels have the same style, the second shares only its colour.
    """
    styles = {
        series.label: series.style or series.label
        for plot in figure.plots
        if isinstance(plot, Plot)
        for series in plot.series
        if not series.quiet
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
