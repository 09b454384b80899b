"""From flags to a verdict: a total decision table in three-valued logic.

An edition fails where one of its terms is true, and a term is true where all of its flags are raised. Missing and not
informative are unknown; where the unknown could change the outcome the verdict is inconclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from walkback.core.errors import unknown
from walkback.judge.flag import Flag

Outcome = Literal["trustworthy", "walked_back", "inconclusive"]

NOT_CHECKED = "depth utility not checked"


@dataclass(frozen=True)
class Edition:
    """One edition of the protocol."""

    name: str
    summary: str
    terms: tuple[tuple[str, ...], ...]
    skips_depth: bool = False
    """Whether D3 is skipped where no frozen baseline was given at all."""


EDITIONS: dict[str, Edition] = {
    edition.name: edition
    for edition in (
        Edition("three", "the later paper: fails if (D1 and D2) or D3", (("D1", "D2"), ("D3",))),
        Edition(
            "four",
            "the first paper: fails if D1 or D2 or D3; without a frozen baseline D3 is skipped",
            (("D1",), ("D2",), ("D3",)),
            skips_depth=True,
        ),
    )
}


@dataclass(frozen=True)
class Verdict:
    """What an edition concludes. It rules out the audited failures; it certifies nothing."""

    outcome: Outcome
    protocol: str
    decided_by: tuple[str, ...]
    """The flags that walk it back, or those whose being unknown leaves it open."""
    reasons: tuple[str, ...]
    note: str = ""

    @property
    def sentence(self) -> str:
        words = {"trustworthy": "trustworthy", "walked_back": "needs walk-back", "inconclusive": "inconclusive"}
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        note = f" ({self.note})" if self.note else ""
        return f"{words[self.outcome]}{why}{note}"

    @property
    def line(self) -> str:
        return f"VERDICT: {self.sentence}"

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.outcome, "sentence": self.sentence, "decided_by": list(self.decided_by)}


def edition(name: str) -> Edition:
    if name not in EDITIONS:
        raise unknown("protocol", name, EDITIONS)
    return EDITIONS[name]


def decide(name: str, flags: Mapping[str, Flag], baseline_given: bool) -> Verdict:
    """The verdict of one edition; total over all flags."""
    return apply(edition(name), flags, baseline_given)


def withheld(name: str, missing: str) -> Verdict:
    """No verdict, because part of what was to be judged is gone."""
    return Verdict("inconclusive", edition(name).name, (), (missing,))


def apply(rules: Edition, flags: Mapping[str, Flag], baseline_given: bool) -> Verdict:
    """The verdict of any table of terms."""
    name, terms = rules.name, rules.terms
    note = ""
    if rules.skips_depth and not baseline_given:
        terms = tuple(term for term in terms if "D3" not in term)
        note = NOT_CHECKED
    raised = [term for term in terms if all(flags[flag].truth is True for flag in term)]
    # A term with a clear flag is settled; of the others, those that are unknown are what is missing.
    unsettled = [term for term in terms if all(flags[flag].truth is not False for flag in term)]
    if raised:
        deciding = _once(raised)
        return Verdict("walked_back", name, deciding, tuple(_why(flags[flag]) for flag in deciding), note)
    if unsettled:
        open_ones = tuple(flag for flag in _once(unsettled) if flags[flag].truth is None)
        return Verdict("inconclusive", name, open_ones, tuple(_missing(flags[flag]) for flag in open_ones), note)
    return Verdict("trustworthy", name, (), (), note)


def _once(terms: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(flag for term in terms for flag in term))


def _why(flag: Flag) -> str:
    value = "" if flag.value is None else f" {flag.value:.3g}{'' if flag.unit == 'x' else ' '}{flag.unit}".rstrip()
    sign = ">" if flag.side == "above" else "<"
    limit = "" if flag.threshold is None else f" {sign} {flag.threshold:g}"
    return f"{flag.id} {flag.name}{value}{limit}"


def _missing(flag: Flag) -> str:
    return f"{flag.id} {flag.name} is {flag.shown.lower()}: {flag.reason}"
