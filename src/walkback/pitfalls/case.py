"""What a pitfall's reproducer gives back, and how the reproducers are found by number."""

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
    """What the wrong and the right way gave, computed now."""

    wrong: float | str
    right: float | str
    size: float
    """How far apart they are: a factor where the unit is "x", otherwise a difference in that unit."""
    unit: str
    expected: float
    """The least size that the pitfall is said to have."""
    note: str = ""
    """What else was seen, or how."""

    @property
    def reproduces(self) -> bool:
        return math.isfinite(self.size) and self.size >= self.expected

    def to_json(self) -> dict[str, Any]:
        plain = {name: _plain(value) for name, value in asdict(self).items()}
        return {**plain, "reproduces": self.reproduces}


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pitfalls() -> dict[int, Entry]:
    """All pitfalls by number, in order, read from their docstrings; nothing is imported."""
    return dict(sorted((_number(entry.name), entry) for entry in CASES.entries()))


def chosen_pitfalls(words: list[str]) -> dict[int, Entry]:
    """The pitfalls with these numbers, in the order of their numbers; all where none is named."""
    every = pitfalls()
    if not words:
        return every
    for word in words:
        if not (word.isdecimal() and int(word) in every):
            raise unknown("pitfall", word, [f"{min(every)} to {max(every)}"])
    wanted = {int(word) for word in words}
    return {number: entry for number, entry in every.items() if number in wanted}


def reproduce_pitfall(entry: Entry) -> PitfallOutcome:
    """Run one pitfall's reproducer."""
    outcome: PitfallOutcome = CASES.get(entry.name)()
    return outcome


def _number(name: str) -> int:
    found = re.fullmatch(r"p(\d+)_\w+", name)
    if found is None:
        raise InputError(f"The pitfall '{name}' has no number. Its name must be like 'p22_short_name'.")
    return int(found[1])
