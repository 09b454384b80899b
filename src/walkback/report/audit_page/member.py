"""One method on the audit page, with its verdict, cards and logs, and helpers for its plots."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup

from walkback.judge.editions import Outcome
from walkback.report.html import SIGNS, VERDICT_CLASSES
from walkback.report.sections import VERDICT_WORDS, Card
from walkback.report.svg import Point

Log = Sequence[Mapping[str, Any]]
"""A run's training log, one row per epoch; empty for a run without a log."""


@dataclass(frozen=True)
class EditionVerdict:
    """A verdict as a sign, a word and a CSS class, so that it can be read without colours."""

    outcome: Outcome

    @property
    def sign(self) -> str:
        return SIGNS[self.outcome]

    @property
    def word(self) -> str:
        return VERDICT_WORDS[self.outcome]

    @property
    def kind(self) -> str:
        return VERDICT_CLASSES[self.outcome]


@dataclass(frozen=True)
class Member:
    """One method with its verdict and the cards and logs of its seeds."""

    name: str
    verdict: EditionVerdict
    cards: tuple[Card, ...]
    logs: tuple[Log, ...]
    """One log for each card."""

    @property
    def breakable_name(self) -> Markup:
        """The name with line break points between its settings."""
        return Markup("<wbr>").join(re.split(r"(?<=[,:])", self.name))

    @property
    def seeds(self) -> list[str]:
        """The labels of the seeds: `seed 1`, or empty for a card without a seed."""
        seeds = [card["claim"]["seed"] for card in self.cards]
        return ["" if seed is None else f"seed {seed}" for seed in seeds]


@dataclass(frozen=True)
class Multiple:
    """The plots of one method (one of the small multiples), and the notes below them."""

    member: Member
    panels: tuple[Markup, ...]
    notes: tuple[str, ...] = ()


def mark_title(*words: str) -> str:
    """The title of a mark, `layer 2, seed 1: +0.104`; empty words are left out."""
    *subject, value = words
    return f"{', '.join(filter(None, subject))}: {value}"


def number_ranges(numbers: Iterable[int]) -> str:
    """The numbers as a text with ranges: `0 to 3, 5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def mean_of(curves: Sequence[Sequence[Point]], log: bool) -> list[Point]:
    """The mean curve at every x that all curves have; its value is None where one of theirs is.

    On a logarithmic axis it is the mean of the logarithms, which is drawn in the middle of the curves.
    """
    by_x = [dict(points) for points in curves]
    means: list[Point] = []
    for x in by_x[0] if by_x else ():
        if all(x in points for points in by_x):
            values = [value for points in by_x if (value := points[x]) is not None]
            means.append((x, _mean(values, log) if len(values) == len(by_x) else None))
    return means


def _mean(values: Sequence[float], log: bool) -> float:
    if not log:
        return fmean(values)
    return math.exp(fmean(map(math.log, values))) if min(values) > 0 else 0.0
