"""Two cards of one run, number by number: the one someone wrote, and the one that measuring again gives.

Numbers that are measured again agree to a relative 1e-3. That alone would ask too much of a quantity that is zero by
nature, such as the cosine of a random credit, so some have an absolute part as well; it is always far below anything a
check or a reader would act on. What was read and not measured (accuracies, thresholds) must be the same number.

Texts must be the same texts. Numbers inside a sentence are roundings of numbers that are compared themselves, and may
differ where a rounding falls the other way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

IGNORED = ("format", "walkback", "provenance", "rerun", "hash", "claim.notes")
"""What says where and by whom a card was made, not what was found."""


@dataclass(frozen=True)
class Tolerance:
    relative: float
    absolute: float = 0.0

    def agree(self, left: float, right: float) -> bool:
        return math.isclose(left, right, rel_tol=self.relative, abs_tol=self.absolute)


COMPARED_KEYS = Tolerance(1e-9)
"""Copied from a record, so that only the last bits may differ."""
_POINTS = Tolerance(1e-9, 1e-6)
"""Percentage points computed from accuracies that were read: a difference of equal numbers may leave a last bit."""
MEASURED = Tolerance(1e-3, 1.2e-38)
"""The absolute part is float32's smallest normal number: below it even equal hardware has no relative precision."""
_COSINE = Tolerance(1e-3, 1e-4)
"""A cosine may be zero by nature. Its null is about 1/sqrt(width) wide, 0.02 or more, and it is printed with three
digits: 1e-4 is far inside either."""
SCORE = Tolerance(1e-3, 1e-2)
"""A cosine over the width of its null, so the same allowance divided by 0.01; printed with one digit."""
_SHARE = Tolerance(1e-3, 2e-3)
"""Counts samples on one side of a line: two of 1024 may lie so close to it that rounding decides."""

_KINDS: dict[str, Tolerance] = {
    **dict.fromkeys(("threshold", "thresholds", "confidence", "headline_acc", "frozen", "bp_acc"), COMPARED_KEYS),
    **dict.fromkeys(("D3", "statistics"), _POINTS),
    **dict.fromkeys(("cos", "clamped", "alignment", "median", "p05", "fresh", "direction"), _COSINE),
    **dict.fromkeys(("A1", "A2", "A3", "A4", "deep_mean", "deep_mean_papers"), _COSINE),
    **dict.fromkeys(("z", "deep_mean_z", "deep_mean_fresh_z"), SCORE),
    **dict.fromkeys(("share", "share_valid"), _SHARE),
}
_PROSE = ("reason", "sentence", "answer", "words", "limits")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
_PRINTED = Tolerance(1e-2)
"""Three significant digits: one more or less in the last of them."""


@dataclass(frozen=True)
class Difference:
    """One place where two cards disagree."""

    key: str
    card: Any
    found: Any

    @property
    def section(self) -> str:
        return re.split(r"[.\[]", self.key)[0]

    @property
    def said(self) -> str:
        """Both values; of long ones the part where they differ."""
        left, right = repr(self.card), repr(self.found)
        first = next(
            (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
        )
        return f"the card has {_cut(left, first)}, here it is {_cut(right, first)}"


def compare_cards(card: Mapping[str, Any], found: Mapping[str, Any]) -> list[Difference]:
    """Every place where a card disagrees with the one found by measuring again."""
    return list(_differences(card, found, ()))


def card_leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every single value that is compared, with the way to it."""
    if _key(path) in IGNORED:
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path, value
    else:
        for name, item in items:
            yield from card_leaves(item, (*path, name))


def card_tolerance(names: Sequence[str]) -> Tolerance:
    """What is allowed to a number under these names; the innermost name that says something decides."""
    return next((_KINDS[name] for name in reversed(names) if name in _KINDS), MEASURED)


def _cut(text: str, at: int, width: int = 80) -> str:
    if len(text) <= width:
        return text
    start = min(max(at - width // 4, 0), len(text) - width)
    return f"{'...' * (start > 0)}{text[start : start + width]}{'...' * (start + width < len(text))}"


def _differences(card: Any, found: Any, path: tuple[str | int, ...]) -> Iterator[Difference]:
    key = _key(path)
    if key in IGNORED:
        return
    if isinstance(card, Mapping) and isinstance(found, Mapping):
        for name in dict.fromkeys([*found, *card]):
            yield from _differences(card.get(name), found.get(name), (*path, name))
    elif isinstance(card, list) and isinstance(found, list) and len(card) == len(found):
        for index, pair in enumerate(zip(card, found, strict=True)):
            yield from _differences(*pair, (*path, _named(pair[1], index)))
    elif not _same(card, found, [name for name in path if isinstance(name, str)]):
        yield Difference(key, card, found)


def _same(card: Any, found: Any, names: Sequence[str]) -> bool:
    if _is_number(card) and _is_number(found):
        # Counts and positions are whole numbers on any machine.
        return bool(card == found) if isinstance(found, int) else card_tolerance(names).agree(card, found)
    if isinstance(card, str) and isinstance(found, str) and names and names[-1] in _PROSE:
        return _same_sentence(card, found)
    return type(card) is type(found) and bool(card == found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same_sentence(card: str, found: str) -> bool:
    if _NUMBER.sub("#", card) != _NUMBER.sub("#", found):
        return False
    return all(map(_same_printed, _NUMBER.findall(card), _NUMBER.findall(found)))


def _same_printed(card: str, found: str) -> bool:
    ours, theirs = float(card), float(found)
    if _PRINTED.agree(ours, theirs):
        return True
    fixed = all("." in text and "e" not in text for text in (card, found))
    unit = 10.0 ** -min(len(text.partition(".")[2]) for text in (card, found)) if fixed else 0.0
    return abs(ours - theirs) <= 1.001 * unit


def _named(item: Any, index: int) -> str | int:
    """Checks and modes go by their id, everything else in a list by its place."""
    return str(item["id"]) if isinstance(item, Mapping) and "id" in item else index


def _key(path: Sequence[str | int]) -> str:
    text = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in path)
    return text.removeprefix(".")
