"""Compare two cards of one run: a stored card, and the card that measuring the run again gives.

Measured numbers must agree to a relative 1e-3. Quantities that may be zero, such as the cosine of a random credit, have
an absolute tolerance as well, far below anything a check or a reader would act on. Numbers that were read rather than
measured (accuracies, thresholds) must be equal.

Sentences are compared only if this version of walkback wrote the card: other versions word them differently. Then they
must be equal; numbers inside are roundings of numbers that are compared themselves, and may differ by one rounding
step. All other texts (ids, statuses, outcomes, hashes) must be equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.judge.card import CORE_CHECKS
from walkback.judge.card_schema import schema
from walkback.judge.thresholds import DiagnosticThresholds

IGNORED = ("format", "walkback", "provenance", "rerun", "hash", "claim.notes", "rejudging")
"""Keys that say where and by whom a card was made, not what was measured; and what only repeats other keys under other
thresholds."""


@dataclass(frozen=True)
class Tolerance:
    """How far two numbers may be apart and still agree."""

    relative: float
    absolute: float = 0.0

    def agree(self, left: float, right: float) -> bool:
        return math.isclose(left, right, rel_tol=self.relative, abs_tol=self.absolute)


COMPARED_KEYS = Tolerance(1e-9)
"""Numbers copied from a record: only the last bits may differ."""
_POINTS = Tolerance(1e-9, 1e-6)
"""Percentage points computed from accuracies that were read: a difference of equal numbers may not be exactly 0."""
MEASURED = Tolerance(1e-3, 1.2e-38)
"""The absolute part is float32's smallest normal number: below it even equal hardware has no relative precision."""
_COSINE = Tolerance(1e-3, 1e-4)
"""A cosine may be zero. Its null is about 1/sqrt(width) wide, 0.02 or more, and it is printed with three
digits: 1e-4 is far inside either."""
SCORE = Tolerance(1e-3, 1e-2)
"""A cosine divided by the width of its null, so the same tolerance divided by 0.01; printed with one digit."""
_SHARE = Tolerance(1e-3, 2e-3)
"""A share of samples beyond a limit: two of 1024 may be so close to it that rounding decides."""

_KINDS: dict[str, Tolerance] = {
    **dict.fromkeys(("threshold", "thresholds", "confidence"), COMPARED_KEYS),
    **dict.fromkeys(("headline_acc", "frozen", "bp_acc", "oracles"), COMPARED_KEYS),
    **dict.fromkeys(("D3", "statistics"), _POINTS),
    **dict.fromkeys(("cos", "clamped", "alignment", "median", "p05", "fresh", "direction"), _COSINE),
    **dict.fromkeys(("A1", "A2", "A3", "A4", "deep_mean", "deep_mean_papers"), _COSINE),
    **dict.fromkeys(("z", "deep_mean_z", "deep_mean_fresh_z"), SCORE),
    **dict.fromkeys(("share", "share_valid"), _SHARE),
}
_SENTENCES = ("reason", "sentence", "question", "answer", "words", "limits", "found")
"""Keys whose values are wording. `claims.*.question` is an id."""
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
_PRINTED = Tolerance(1e-2)
"""Three significant digits, the last of which may differ by one."""


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
    def is_wording(self) -> bool:
        """Whether it is a difference of sentences, not of numbers, ids or outcomes."""
        names = re.findall(r"[A-Za-z_]\w*", self.key)
        if names[0] == "claims" and names[-1] == "question":
            return False
        is_name = names[0] in ("checks", "modes") and names[-1] == "name"
        return is_name or names[-1] in _SENTENCES

    @property
    def text(self) -> str:
        """Both values, long ones cut to the part where they differ."""
        left, right = repr(self.card), repr(self.found)
        first = next(
            (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
        )
        return f"the card has {_cut(left, first)}, here it is {_cut(right, first)}"


def compare_cards(card: Mapping[str, Any], found: Mapping[str, Any], *, wording: bool = True) -> list[Difference]:
    """Every place where a card disagrees with the one found by measuring again.

    A threshold or a check that was added to walkback after the card was written is no difference. Without `wording`
    sentences are not compared.
    """
    if "thresholds" in card:
        defaults = DiagnosticThresholds().to_json()
        later = {name: defaults[name] for name in defaults.keys() - set(DiagnosticThresholds.JSON_REQUIRED)}
        card = {**card, "thresholds": later | dict(card["thresholds"])}
    differences = _differences(card, without_checks(found, added_checks(card, found)), ())
    return [difference for difference in differences if wording or not difference.is_wording]


def as_format_1(card: Mapping[str, Any]) -> Mapping[str, Any]:
    """A card without the keys that cards of format 1 do not have, to compare it with one."""
    found: Mapping[str, Any] = _known_keys(card, schema(1))
    return found


def _known_keys(value: Any, rule: Mapping[str, Any]) -> Any:
    """`value` without the keys that its schema does not allow."""
    if isinstance(value, Mapping) and rule.get("additionalProperties") is False:
        known = rule["properties"]
        return {name: _known_keys(item, known[name]) for name, item in value.items() if name in known}
    if isinstance(value, list):
        return [_known_keys(item, rule.get("items", {})) for item in value]
    return value


_UPDATE_NULL = ("update_z", "update_null_std")


def has_older_update_null(card: Mapping[str, Any]) -> bool:
    """Whether the null of its updates was estimated as before version 0.13, from draws alone."""
    return any("update_null_std" in block and "update_null_draws" not in block for block in card.get("blocks", ()))


def with_update_null_of(card: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """`found` with the null of the updates that an older `card` states."""
    blocks = [
        {**{key: value for key, value in block.items() if key in stated}, **{key: stated[key] for key in _UPDATE_NULL}}
        for block, stated in zip(found["blocks"], card["blocks"], strict=False)
    ]
    return {**found, "blocks": [*blocks, *found["blocks"][len(blocks) :]]}


def added_checks(card: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The ids of checks that `other` has and `card` lacks, apart from those that every card must have."""
    ids = {check["id"] for check in card.get("checks", ())}
    return [check["id"] for check in other.get("checks", ()) if check["id"] not in {*ids, *CORE_CHECKS}]


def without_checks(card: Mapping[str, Any], ids: Sequence[str]) -> Mapping[str, Any]:
    """The card without the checks of these ids."""
    return {**card, "checks": [check for check in card["checks"] if check["id"] not in ids]} if ids else card


def card_leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every scalar that is compared, with its path in the card."""
    if _key(path) in IGNORED:
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path, value
    else:
        for name, item in items:
            yield from card_leaves(item, (*path, name))


def card_tolerance(names: Sequence[str]) -> Tolerance:
    """The tolerance of the number at this path of names; the innermost name that has a tolerance decides."""
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
        # Counts and indices are the same on any machine.
        return bool(card == found) if isinstance(found, int) else card_tolerance(names).agree(card, found)
    if isinstance(card, str) and isinstance(found, str) and names and names[-1] in _SENTENCES:
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
    """The path element of an item in a list: its id if it has one (checks, failure modes), else its index."""
    return str(item["id"]) if isinstance(item, Mapping) and "id" in item else index


def _key(path: Sequence[str | int]) -> str:
    text = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in path)
    return text.removeprefix(".")
