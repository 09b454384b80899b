"""The papers' editions: verdicts from checks, by a decision table in three-valued logic that covers every combination.

A method is walked back if one of the edition's terms is true; a term is true if all of its checks fail. Missing and not
informative checks are unknown; if they could change the outcome, the verdict is inconclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from walkback.core.errors import unknown
from walkback.judge.card_part import CardPart
from walkback.judge.flag import Flag

Outcome = Literal["trustworthy", "walked_back", "inconclusive", "cannot_be_judged"]

CLAIMS_EDITION = "claims"
"""The default edition: the headline that `headline.py` reads off the claims."""
NOT_CHECKED = "depth utility not checked"


@dataclass(frozen=True)
class Edition:
    """One edition of the protocol; `terms` are the combinations of checks that walk a method back."""

    name: str
    summary: str
    terms: tuple[tuple[str, ...], ...]
    skips_depth: bool = False
    """Whether D3 is skipped if no frozen baseline was given."""
    excuses_fitted: bool = False
    """Whether a small gradient (D2) that a small error explains walks nothing back."""


EDITIONS: dict[str, Edition] = {
    edition.name: edition
    for edition in (
        Edition("three", "the later paper: fails if (D1 and D2) or D3", (("D1", "D2"), ("D3",))),
        Edition(
            "four",
            "the first paper: fails if D1 or D2 or D3; without a frozen baseline D3 is skipped",
            (("D1",), ("D2",), ("D3",)),
            skips_depth=True,
            excuses_fitted=True,
        ),
    )
}
"""The papers' own rules."""
PROTOCOLS: dict[str, str] = {
    CLAIMS_EDITION: "what may be claimed: depth beyond its interval, and alignment in every block",
    **{name: rules.summary for name, rules in EDITIONS.items()},
}
"""Everything that can decide a headline, with its summary; the first is the default."""


@dataclass(frozen=True)
class Verdict(CardPart):
    """What an edition concludes. It rules out the audited failures; it certifies nothing."""

    outcome: Outcome
    protocol: str
    decided_by: tuple[str, ...]
    """The checks that walk it back, or the unknown ones that leave it inconclusive."""
    reasons: tuple[str, ...]
    note: str = ""

    JSON_KEYS = ("verdict", "sentence", "decided_by")
    JSON_ATTRIBUTES: ClassVar = {"verdict": "outcome"}

    @property
    def word(self) -> str:
        return "needs walk-back" if self.outcome == "walked_back" else self.outcome.replace("_", " ")

    @property
    def sentence(self) -> str:
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.word}{why}{note}"

    @property
    def line(self) -> str:
        return f"VERDICT: {self.sentence}"


def edition(name: str) -> Edition:
    if name not in EDITIONS:
        raise unknown("protocol", name, EDITIONS)
    return EDITIONS[name]


def require_protocol(name: str) -> None:
    """Refuse a name that is no edition."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)


def decide(
    name: str, flags: Mapping[str, Flag], baseline_given: bool, broken: str = "", as_published: bool = False
) -> Verdict:
    """The verdict of the edition called `name`.

    `broken` says why the model's predictions are no predictions: such a model is never called trustworthy, whatever its
    checks say. `as_published` leaves out this and the excuse of fitted networks, as cards of format 1 do.
    """
    rules = edition(name)
    verdict = apply(replace(rules, excuses_fitted=False) if as_published else rules, flags, baseline_given)
    if broken and not as_published and verdict.outcome != "walked_back":
        return Verdict("cannot_be_judged", name, (), (broken,), verdict.note)
    return verdict


def withheld(name: str, missing: str) -> Verdict:
    """An inconclusive verdict, because part of the evidence is missing; `missing` says which."""
    return Verdict("inconclusive", name, (), (missing,))


def apply(rules: Edition, flags: Mapping[str, Flag], baseline_given: bool) -> Verdict:
    """The verdict of any edition, also one that is not among EDITIONS."""
    name, terms = rules.name, rules.terms
    note = ""
    if rules.skips_depth and not baseline_given:
        terms = tuple(term for term in terms if "D3" not in term)
        note = NOT_CHECKED

    def truth(flag: Flag) -> bool | None:
        return False if rules.excuses_fitted and flag.is_fitted else flag.truth

    raised = [term for term in terms if all(truth(flags[flag]) is True for flag in term)]
    # A term with a clear flag is false. The others could still become true: their unknown flags are what is missing.
    unsettled = [term for term in terms if all(truth(flags[flag]) is not False for flag in term)]
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
