"""What a study has to tell: tables, figures and findings, as plain values that every format is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from walkback.core.jsonable import jsonable
from walkback.report.cells import Cell, tidy

Mark = Literal["line", "points", "both", "bars"]


@dataclass(frozen=True)
class Table:
    """Rows of cells. The caption says what they are of: n, ddof, data, recipe."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _tidy(self, "caption")

    def to_json(self) -> dict[str, Any]:
        rows = [[{"text": c.text, "value": c.value, "reason": c.reason} for c in row] for row in self.rows]
        return {
            "name": self.name,
            "title": self.title,
            "heads": list(self.heads),
            "rows": rows,
            "caption": self.caption,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Series:
    """One curve, its values None where there is nothing to draw. `style` keeps a method's looks in every figure."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    style: str = ""
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    """The ends of a band or of error bars."""
    mark: Mark = "line"

    def to_json(self) -> dict[str, Any]:
        named = {"x": self.x, "y": self.y, "low": self.low, "high": self.high}
        return {"label": self.label} | {
            name: [None if value is None else float(value) for value in values] for name, values in named.items()
        }


@dataclass(frozen=True)
class Plot:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)
    """Thresholds drawn across, by what they are called."""
    ticks: tuple[str, ...] = ()
    """Names in place of the numbers 0, 1, ... along x."""
    events: tuple[tuple[float, str], ...] = ()
    """Marks along x, such as the epoch at which a detector first fires."""

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "series": [series.to_json() for series in self.series],
            "levels": dict(self.levels),
            "ticks": list(self.ticks),
            "events": [{"x": x, "name": name} for x, name in self.events],
        }


@dataclass(frozen=True)
class CellGrid:
    """A table of words drawn as coloured, hatched fields: what each strategy concludes of each case."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    """`trustworthy`, `walked_back`, `inconclusive` or any other short word."""

    def to_json(self) -> dict[str, Any]:
        cells = [list(row) for row in self.cells]
        return {"title": self.title, "columns": list(self.columns), "rows": list(self.rows), "cells": cells}


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    plots: tuple[Plot | CellGrid, ...]
    caption: str
    columns: int = 2
    """Plots side by side."""

    def __post_init__(self) -> None:
        _tidy(self, "caption")

    def to_json(self) -> dict[str, Any]:
        plots = [plot.to_json() for plot in self.plots]
        return {"name": self.name, "title": self.title, "caption": self.caption, "plots": plots}


@dataclass(frozen=True)
class Finding:
    """A claim and whether these results bear it out; None where they cannot decide it."""

    claim: str
    holds: bool | None
    said: str

    def __post_init__(self) -> None:
        _tidy(self, "claim", "said")

    @property
    def word(self) -> str:
        return {True: "holds", False: "does not hold", None: "not decided here"}[self.holds]

    def to_json(self) -> dict[str, Any]:
        return {"claim": self.claim, "holds": self.holds, "said": self.said}


@dataclass(frozen=True)
class StudyReport:
    """All of one study."""

    name: str
    title: str
    question: str
    findings: tuple[Finding, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    facts: tuple[str, ...] = ()
    """How it was obtained: scale, runs, epochs, seeds, data."""
    runs: tuple[str, ...] = ()
    """The names of the runs behind it, which lie in the folder `runs` beside the study's own."""
    commands: tuple[str, ...] = ()
    """How to obtain it again."""

    def to_json(self) -> dict[str, Any]:
        """Everything the pages show, drawn values too; a number that is not finite is null."""
        whole = {
            "format": 1,
            "name": self.name,
            "title": self.title,
            "question": self.question,
            "findings": [finding.to_json() for finding in self.findings],
            "tables": [table.to_json() for table in self.tables],
            "figures": [figure.to_json() for figure in self.figures],
            "facts": list(self.facts),
            "runs": list(self.runs),
            "commands": list(self.commands),
        }
        found: dict[str, Any] = jsonable(whole)
        return found


def _tidy(told: object, *names: str) -> None:
    """Write the sizes in these texts as people do."""
    for name in names:
        object.__setattr__(told, name, tidy(getattr(told, name)))
