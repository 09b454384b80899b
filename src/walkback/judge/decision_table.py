"""Decision tables: rows with a condition and a result, of which the first that matches decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Facts = TypeVar("Facts")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TableRow(Generic[Facts, Result]):
    """One row: where its condition holds and no row above it matches, it gives the result."""

    id: str
    matches: Callable[[Facts], bool]
    result: Callable[[Facts], Result]


def always(facts: object) -> bool:
    """The condition of a table's last row."""
    return True


def matching_row(table: Sequence[TableRow[Facts, Result]], facts: Facts) -> TableRow[Facts, Result]:
    """The first row whose condition holds; the last row of a table always matches."""
    return next(row for row in table if row.matches(facts))
