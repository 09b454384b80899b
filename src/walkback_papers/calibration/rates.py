"""How often claims are wrong: methods of known truth, their seeds judged in disjoint groups, rates with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from walkback.judge.statistics import exact_interval, paired_margin
from walkback_papers.calibration.seed_results import THRESHOLDS, GroupVerdict, SeedResult, judge_group

ClaimName = Literal["depth", "alignment", "headline"]
CLAIM_NAMES: tuple[ClaimName, ...] = ("depth", "alignment", "headline")
GROUP_SIZES = (1, 3, 5)
CLEAR_PP = 1.0
"""A method's depth is known if its margin over all seeds is at least this far from the line."""
Answer = Literal["passes", "walked back", "undecided"]
PASSED: Answer = "passes"
WALKED_BACK: Answer = "walked back"
UNDECIDED: Answer = "undecided"
_PASSES = {"stands", "trivial", "trustworthy"}
_FAILS = {"walked_back", "invalid"}


@dataclass(frozen=True)
class Rate:
    """How many of several groups."""

    hits: int
    groups: int

    @property
    def interval(self) -> tuple[float, float]:
        return exact_interval(self.hits, self.groups)

    @property
    def text(self) -> str:
        if not self.groups:
            return "–"
        low, high = (f"{100 * end:.1f}" for end in self.interval)
        return f"{self.hits} of {self.groups}: {100 * self.hits / self.groups:.1f}% [{low}, {high}]"

    def is_below(self, line: float) -> bool | None:
        """Whether the rate is below `line`; None where its interval contains the line."""
        if not self.groups:
            return None
        low, high = self.interval
        return True if high < line else False if low > line else None


@dataclass(frozen=True)
class KnownMethod:
    """A method of which the truth of a claim is known, over all its seeds."""

    name: str
    place: str
    seeds: tuple[SeedResult, ...]
    majority_share: float
    paired: bool
    """Whether the samples of one seed are paired with those of its baseline."""
    aligned: bool | None
    """Whether its credit is aligned in every block by construction; None where that is not known."""
    has_own_depth: bool = True
    """False for a network that another method trained: its depth is that method's."""
    two_modes: bool = False
    """Whether its seeds have two modes on purpose: it is shown and not counted."""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.place})"

    @cached_property
    def margin(self) -> tuple[float, tuple[float, float] | None]:
        """The margin over all seeds, in percentage points, with its interval."""
        ours, theirs = zip(*(seed.own.accuracies for seed in self.seeds), strict=True)
        found = paired_margin(ours, theirs)
        return found.mean, found.interval

    @property
    def trains_depth(self) -> bool | None:
        """Whether trained blocks beat frozen ones by the line; None where the margin is too close to it."""
        distance = self.margin[0] - THRESHOLDS.frozen_acc_margin_pp
        return None if abs(distance) < CLEAR_PP else distance > 0

    def truth(self, claim: ClaimName) -> bool | None:
        """Whether the claim is true of it; None where that is not known, or where it is not counted."""
        if self.two_modes or (claim == "depth" and not self.has_own_depth):
            return None
        if claim == "depth":
            return self.trains_depth
        if claim == "alignment":
            return self.aligned
        both = (self.trains_depth, self.aligned)
        return False if False in both else None if None in both else True

    def groups(self, size: int) -> list[GroupVerdict]:
        """The verdicts on its seeds in disjoint groups, in the order of the seeds; a rest is left out."""
        if size not in self._groups:
            starts = range(0, len(self.seeds) - size + 1, size)
            self._groups[size] = [
                judge_group(self.seeds[start : start + size], self.majority_share, paired=self.paired)
                for start in starts
            ]
        return self._groups[size]

    @cached_property
    def _groups(self) -> dict[int, list[GroupVerdict]]:
        return {}

    def answers(self, claim: ClaimName, size: int) -> list[Answer]:
        return [answer_of(verdict, claim) for verdict in self.groups(size)]

    def holding(self, size: int) -> tuple[int, int]:
        """How many groups' intervals contain the margin over all seeds, of those that have an interval."""
        ends = [verdict.interval for verdict in self.groups(size) if verdict.interval is not None]
        return sum(low <= self.margin[0] <= high for low, high in ends), len(ends)

    def rows(self, size: int) -> Counter[str]:
        """The rows of the alignment claim's table that decided the groups."""
        return Counter(verdict.alignment.row for verdict in self.groups(size))


def answer_of(verdict: GroupVerdict, claim: ClaimName) -> Answer:
    """A claim's outcome as one of three; every outcome that neither confirms nor refutes is `undecided`."""
    outcome = verdict.headline if claim == "headline" else getattr(verdict, claim).outcome
    return PASSED if outcome in _PASSES else WALKED_BACK if outcome in _FAILS else UNDECIDED


def rate(methods: Iterable[KnownMethod], claim: ClaimName, size: int, *, truth: bool, answer: Answer) -> Rate:
    """How many groups of the methods of this truth get this answer."""
    answers = [found for method in methods if method.truth(claim) is truth for found in method.answers(claim, size)]
    return Rate(answers.count(answer), len(answers))


def mixed(
    method: KnownMethod, collapsed: KnownMethod, name: str, share: float, draws: np.random.Generator
) -> KnownMethod:
    """A method of two modes: each seed is that of `collapsed` with probability `share`."""
    picks = draws.uniform(size=len(method.seeds)) < share
    seeds = tuple(bad if pick else good for good, bad, pick in zip(method.seeds, collapsed.seeds, picks, strict=True))
    return KnownMethod(name, method.place, seeds, method.majority_share, method.paired, None, two_modes=True)


def table_texts(method: KnownMethod, claim: ClaimName, sizes: Sequence[int] = GROUP_SIZES) -> list[str]:
    """For each size of group, how many pass, are walked back, and stay undecided."""
    found = [Counter(method.answers(claim, size)) for size in sizes]
    return [f"{counts[PASSED]} / {counts[WALKED_BACK]} / {counts[UNDECIDED]}" for counts in found]
