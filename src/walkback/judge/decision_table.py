"""Decision tables: rows with a condition and a result, of which the first that matches decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Facts = TypeVar("Facts")
Decision = TypeVar("Decision")


@dataclass(frozen=True)
class TableRow(Generic[Facts, Decision]):
    """One row: where its condition holds and no row above it matches, it gives the result."""

    id: str
    matches: Callable[[Facts], bool]
    result: Callable[[Facts], Decision]


def always(facts: object) -> bool:
    """The condition of a table's last row."""
    return True


def matching_row(table: Sequence[TableRow[Facts, Decision]], facts: Facts) -> TableRow[Facts, Decision]:
    """The first row whose condition holds; the last row of a table always matches."""
    return next(row for row in table if row.matches(facts))
