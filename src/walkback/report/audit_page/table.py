"""The table of methods as the page lays it out: what each cell is sorted by, and verdicts with their signs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup

from walkback.judge.audit_table import EditionRuling
from walkback.report.audit_page.member import EditionVerdict
from walkback.report.overview import OVERVIEW_NUMBERS, Column, Overview

RANKS = {"walked_back": 0, "inconclusive": 1, "trustworthy": 2}


@dataclass(frozen=True)
class Shown:
    """A cell; `value` is what it is sorted by in a column of numbers."""

    text: str
    value: float | None = None
    verdict: EditionVerdict | None = None

    @property
    def kept(self) -> Markup:
        """The text, broken between numbers but never inside one, nor between a sign and what follows it."""
        sign = f"{self.verdict.sign} " if self.verdict else ""
        parts = re.findall(r"[±✓✗?] \S+|\S+", sign + self.text)
        return Markup(" ").join(Markup('<span class="kept">{}</span>').format(part) for part in parts)


def columns(table: Overview) -> list[Column]:
    """The columns; verdicts are sorted by how good they are, not by the alphabet."""
    editions = len(OVERVIEW_NUMBERS) + len(table.audit_table.rows[0].rulings)
    return [
        Column(column.name, True, "up") if len(OVERVIEW_NUMBERS) <= at < editions else column
        for at, column in enumerate(table.columns)
    ]


def table_rows(table: Overview) -> list[list[Shown]]:
    found = []
    for row, judged in zip(table.rows, table.audit_table.rows, strict=True):
        rulings = dict(enumerate(judged.rulings.values(), start=len(OVERVIEW_NUMBERS)))
        found.append([_shown(cell.text, cell.value, rulings.get(at)) for at, cell in enumerate(row)])
    return found


def _shown(text: str, value: float | None, ruling: EditionRuling | None) -> Shown:
    if ruling is None:
        return Shown(text, value)
    return Shown(text, RANKS[ruling.outcome], EditionVerdict(ruling.outcome))
