"""The outcome of a pitfall's reproducer, and the lookup of reproducers by number."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from walkback.core.catalog import Entry
from walkback.core.errors import InputError, unknown
from walkback.pitfalls import CASES


@dataclass(frozen=True)
class PitfallOutcome:
    """The values that the wrong and the right way give in this run."""

    wrong: float | str
    right: float | str
    size: float
    """The size of the error: a factor where the unit is "x", otherwise a difference in that unit."""
    unit: str
    expected: float
    """The least size that the pitfall's docstring states."""
    note: str = ""
    """Further values, or how they were obtained."""

    @property
    def reproduces(self) -> bool:
        """Whether the error is at least as large as stated."""
        return math.isfinite(self.size) and self.size >= self.expected

    def to_json(self) -> dict[str, Any]:
        values = {name: _finite_or_none(value) for name, value in asdict(self).items()}
        return {**values, "reproduces": self.reproduces}


def _finite_or_none(value: Any) -> Any:
    """The value, or None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pitfalls() -> dict[int, Entry]:
    """All pitfalls by number, in order, read from their docstrings without importing them."""
    return dict(sorted((_number(entry.name), entry) for entry in CASES.entries()))


def chosen_pitfalls(words: list[str]) -> dict[int, Entry]:
    """The pitfalls with these numbers, in numerical order; all where the list is empty."""
    known = pitfalls()
    if not words:
        return known
    for word in words:
        if not (word.isdecimal() and int(word) in known):
            raise unknown("pitfall", word, [f"{min(known)} to {max(known)}"])
    wanted = {int(word) for word in words}
    return {number: entry for number, entry in known.items() if number in wanted}


def reproduce_pitfall(entry: Entry) -> PitfallOutcome:
    """Run one pitfall's reproducer."""
    outcome: PitfallOutcome = CASES.get(entry.name)()
    return outcome


def _number(name: str) -> int:
    found = re.fullmatch(r"p(\d+)_\w+", name)
    if found is None:
        raise InputError(f"The pitfall '{name}' has no number. Its name must be like 'p22_short_name'.")
    return int(found[1])
