"""The table of methods on the audit page: cells with their sort values, and verdicts with their signs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup

from walkback.judge.audit_table import EditionRuling
from walkback.report.audit_page.member import EditionVerdict
from walkback.report.overview import OVERVIEW_NUMBERS, Column, Overview

_VERDICT_RANKS = {"walked_back": 0, "cannot_be_judged": 1, "inconclusive": 2, "trustworthy": 3}
"""Sort values of verdicts; a larger one is better."""


@dataclass(frozen=True)
class PageCell:
    """A cell; columns of numbers and verdicts are sorted by `value`."""

    text: str
    value: float | None = None
    verdict: EditionVerdict | None = None

    @property
    def unbroken(self) -> Markup:
        """The text; its lines may break between numbers, but not inside one or after a sign."""
        sign = f"{self.verdict.sign} " if self.verdict else ""
        parts = re.findall(r"[±✓✗?] \S+|\S+", sign + self.text)
        return Markup(" ").join(Markup('<span class="unbroken">{}</span>').format(part) for part in parts)


def columns(table: Overview) -> list[Column]:
    """The overview's columns; those of verdicts are sorted by their rank instead of alphabetically."""
    editions = len(OVERVIEW_NUMBERS) + len(table.audit_table.rows[0].rulings)
    return [
        Column(column.name, True, "up") if len(OVERVIEW_NUMBERS) <= at < editions else column
        for at, column in enumerate(table.columns)
    ]


def table_rows(table: Overview) -> list[list[PageCell]]:
    """The overview's rows."""
    rows = []
    for row, judged in zip(table.rows, table.audit_table.rows, strict=True):
        rulings = dict(enumerate(judged.rulings.values(), start=len(OVERVIEW_NUMBERS)))
        rows.append([_cell(cell.text, cell.value, rulings.get(at)) for at, cell in enumerate(row)])
    return rows


def _cell(text: str, value: float | None, ruling: EditionRuling | None) -> PageCell:
    if ruling is None:
        return PageCell(text, value)
    return PageCell(text, _VERDICT_RANKS[ruling.outcome], EditionVerdict(ruling.outcome))
