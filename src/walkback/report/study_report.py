"""A study's results as plain values: tables, figures and findings. Every output format is made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from walkback.core.jsonable import jsonable
from walkback.core.reading.regular_files import Fault
from walkback.core.reading.schema import Schema, check_schema
from walkback.report.cells import Cell, tidy

Mark = Literal["line", "points", "both", "bars"]
_FINDING_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Table:
    """Rows of cells. The caption states n, ddof, data and training settings."""

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
    """One curve; None where there is no value to draw. `style` names the line style, the same in every figure."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    style: str = ""
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    """The ends of a band or of error bars."""
    mark: Mark = "line"
    names: Sequence[str] = ()
    """A text beside each point; such a series needs no tick labels."""
    quiet: bool = False
    """A thin grey line in the background, without a label of its own."""

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
    """Thresholds drawn as horizontal lines, by label."""
    ticks: tuple[str, ...] = ()
    """Labels that replace the numbers 0, 1, ... along x."""
    events: tuple[tuple[float, str], ...] = ()
    """Marks along x, such as the epoch at which a detector first fires."""
    horizontal: bool = False
    """Draw x from top to bottom and values from left to right, for long tick labels."""
    breaks: tuple[float, ...] = ()
    """Places along x at which the axis is marked as broken."""
    y_range: tuple[float, float] | None = None
    """The ends of the axis of values, where they do not follow from the values."""

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
    """A table of words drawn as coloured, hatched cells, such as the verdict of each strategy on each case."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    """By row and column: `trustworthy`, `walked_back`, `inconclusive` or any other short word."""

    def to_json(self) -> dict[str, Any]:
        cells = [list(row) for row in self.cells]
        return {"title": self.title, "columns": list(self.columns), "rows": list(self.rows), "cells": cells}


@dataclass(frozen=True)
class Figure:
    """Plots and grids drawn together, with one caption."""

    name: str
    title: str
    plots: tuple[Plot | CellGrid, ...]
    caption: str
    columns: int = 2
    """Number of plots side by side."""
    zoom: float = 1.0
    """How much larger than usual the axes are."""

    def __post_init__(self) -> None:
        _tidy(self, "caption")

    def to_json(self) -> dict[str, Any]:
        plots = [plot.to_json() for plot in self.plots]
        return {"name": self.name, "title": self.title, "caption": self.caption, "plots": plots}


@dataclass(frozen=True)
class Finding:
    """A claim and whether the results support it."""

    id: str
    """Kebab-case, unique within its study, unchanged when the claim is reworded; empty if read from a file of 0.8.1."""
    claim: str
    holds: bool | None
    """None where the results cannot decide the claim."""
    details: str
    """The numbers behind the answer. Stored as `said`."""

    def __post_init__(self) -> None:
        _tidy(self, "claim", "details")

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Finding:
        """Read a finding of `study.json`; files written by 0.8.1 have no `id`."""
        return cls(stored.get("id", ""), stored["claim"], stored["holds"], stored["said"])

    @property
    def word(self) -> str:
        """`holds` in words."""
        return {True: "holds", False: "does not hold", None: "not decided here"}[self.holds]

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "claim": self.claim, "holds": self.holds, "said": self.details}


@dataclass(frozen=True)
class StudyReport:
    """Everything that the pages of one study show."""

    name: str
    title: str
    question: str
    findings: tuple[Finding, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    facts: tuple[str, ...] = ()
    """How the results were obtained: scale, runs, epochs, seeds, data."""
    runs: tuple[str, ...] = ()
    """Names of the runs behind it; they are in the folder `runs` next to the study's folder."""
    commands: tuple[str, ...] = ()
    """Commands that reproduce it."""

    def __post_init__(self) -> None:
        ids = [finding.id for finding in self.findings]
        for finding_id in ids:
            if not _FINDING_ID.fullmatch(finding_id):
                raise ValueError(f"{self.name}: the finding id {finding_id!r} is not kebab-case (a-z, 0-9, hyphens).")
            if ids.count(finding_id) > 1:
                raise ValueError(f"{self.name}: {ids.count(finding_id)} findings have the id {finding_id!r}.")

    def finding(self, finding_id: str) -> Finding:
        """The finding with this id."""
        for finding in self.findings:
            if finding.id == finding_id:
                return finding
        known = ", ".join(finding.id for finding in self.findings)
        raise KeyError(f"{self.name} has no finding {finding_id!r}. Known: {known}.")

    def to_json(self) -> dict[str, Any]:
        """The content of `study.json`, including the values in figures; numbers that are not finite become null."""
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
        plain: dict[str, Any] = jsonable(whole)
        return plain


def check_stored_study(document: Mapping[str, Any], fault: Fault) -> None:
    """Refuse a `study.json` that lacks what can be quoted of it."""
    check_schema(document, _STUDY, fault)
    for table in document["tables"]:
        if not table["heads"] or any(len(row) != len(table["heads"]) for row in table["rows"]):
            raise fault(f"has a table '{table['name']}' whose rows do not fit its heads")


_TEXT: Schema = {"type": "string"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


_STUDY = _object(
    name=_TEXT,
    findings=_list(_object(claim=_TEXT, holds={"type": ["boolean", "null"]}, said=_TEXT)),
    tables=_list(_object(name=_TEXT, heads=_list(_TEXT), rows=_list(_list(_object(text=_TEXT))), caption=_TEXT)),
    figures=_list(_object(name=_TEXT, title=_TEXT)),
)


def _tidy(frozen: object, *names: str) -> None:
    """Rewrite numbers such as 1e-07 in these text fields of a frozen dataclass as 1e-7."""
    for name in names:
        object.__setattr__(frozen, name, tidy(getattr(frozen, name)))
