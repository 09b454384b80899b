"""One method on the page, and the cells that are drawn for each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup

from walkback.judge.editions import Outcome
from walkback.report.html import SIGNS
from walkback.report.sections import VERDICT_WORDS, Card
from walkback.report.svg import Point

Log = Sequence[Mapping[str, Any]]
"""A run's training log, a row for each epoch; empty where there is none."""
_KINDS = {"trustworthy": "good", "walked_back": "bad", "inconclusive": "warn"}


@dataclass(frozen=True)
class EditionVerdict:
    """A verdict for readers with and without colour: a sign, a word and a kind."""

    outcome: Outcome

    @property
    def sign(self) -> str:
        return SIGNS[self.outcome]

    @property
    def word(self) -> str:
        return VERDICT_WORDS[self.outcome]

    @property
    def kind(self) -> str:
        return _KINDS[self.outcome]


@dataclass(frozen=True)
class Member:
    """One method with all that is known of its seeds."""

    name: str
    verdict: EditionVerdict
    cards: tuple[Card, ...]
    logs: tuple[Log, ...]
    """One for each card."""

    @property
    def broken(self) -> Markup:
        """The name, which may be broken between its settings."""
        return Markup("<wbr>").join(re.split(r"(?<=[,:])", self.name))

    @property
    def seeds(self) -> list[str]:
        """What each card's network is called beside its others."""
        named = [card["claim"]["seed"] for card in self.cards]
        return ["" if seed is None else f"seed {seed}" for seed in named]


@dataclass(frozen=True)
class Multiple:
    """The plots of one method, and what must be said below them."""

    member: Member
    panels: tuple[Markup, ...]
    notes: tuple[str, ...] = ()


def told(*words: str) -> str:
    """`layer 2, seed 1: +0.104`; parts that say nothing are left out."""
    *about, value = words
    return f"{', '.join(filter(None, about))}: {value}"


def joined_words(numbers: Iterable[int]) -> str:
    """`0 to 3, 5`: neighbours as a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def mean_of(curves: Sequence[Sequence[Point]], log: bool) -> list[Point]:
    """The mean curve, where every curve has a point; no value where one of them has none.

    On a logarithmic axis it is that of the logarithms: it lies in the middle of the curves as they are drawn.
    """
    found = [dict(points) for points in curves]
    means: list[Point] = []
    for x in found[0] if found else ():
        if all(x in points for points in found):
            values = [value for points in found if (value := points[x]) is not None]
            means.append((x, _middle(values, log) if len(values) == len(found) else None))
    return means


def _middle(values: Sequence[float], log: bool) -> float:
    if not log:
        return fmean(values)
    return math.exp(fmean(map(math.log, values))) if min(values) > 0 else 0.0
