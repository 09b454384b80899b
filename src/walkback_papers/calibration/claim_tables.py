"""Tables of the study `calibration`: how often claims are wrong, over all methods and by method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from walkback.report.cells import Cell
from walkback.report.study_report import Table
from walkback_papers.calibration.rates import (
    CLAIM_NAMES,
    CLEAR_PP,
    GROUP_SIZES,
    PASSED,
    UNDECIDED,
    WALKED_BACK,
    KnownMethod,
    rate,
    table_texts,
)
from walkback_papers.calibration.seed_results import THRESHOLDS


def _seed_words(places: Sequence[str], seeds: Sequence[int]) -> str:
    groups = ", ".join(f"{len(seeds) // n} of {n}" for n in GROUP_SIZES)
    return (
        f"Embedded tasks ({', '.join(places)}), networks of width 32; seeds {seeds[0]} to {seeds[-1]}, "
        f"judged in disjoint groups in their order ({groups}), each method alone, so that Holm's correction changes "
        "nothing, with baselines of the same seeds."
    )


_TRUTH_WORDS = (
    f"Depth is true from a margin over all seeds of {THRESHOLDS.frozen_acc_margin_pp + CLEAR_PP:g} pp on, false up to "
    f"{THRESHOLDS.frozen_acc_margin_pp - CLEAR_PP:g} pp; between them a method is not counted. Alignment is true or "
    "false by construction. The headline is true where both are, false where one is false."
)


def rates_table(methods: Sequence[KnownMethod], places: Sequence[str], seeds: Sequence[int]) -> Table:
    heads = (
        "claim", "true, walked back", "true, undecided", "false, passes", "false, undecided",
    )  # fmt: skip
    rows = []
    for claim in CLAIM_NAMES:
        for n in GROUP_SIZES:
            cells = [
                rate(methods, claim, n, truth=truth, answer=answer)
                for truth, answer in ((True, WALKED_BACK), (True, UNDECIDED), (False, PASSED), (False, UNDECIDED))
            ]
            shown = (Cell(found.text, found.hits / found.groups if found.groups else None) for found in cells)
            rows.append((Cell(f"{claim}, {seeds_text(n)}"), *shown))
    note = (
        "Groups of all methods and tasks, with exact 95% binomial intervals that take groups as independent; those of "
        "one task share seeds. Undecided: every outcome but stands (trivial, trustworthy) and walked back (invalid), "
        "such as inconclusive, cannot be judged, and detectable but small."
    )
    return Table(
        "rates", "How often claims are wrong", heads, tuple(rows), f"{_seed_words(places, seeds)} {_TRUTH_WORDS} {note}"
    )


def seeds_text(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def _truth_text(truth: bool | None) -> str:
    return {True: "true", False: "false", None: "not counted"}[truth]


def depth_table(methods: Sequence[KnownMethod], places: Sequence[str], seeds: Sequence[int]) -> Table:
    heads = (
        "method", "margin, pp", "depth", *map(seeds_text, GROUP_SIZES),
        *(f"interval holds it, {seeds_text(n)}" for n in GROUP_SIZES),
    )  # fmt: skip
    rows = []
    for method in (method for method in methods if method.has_own_depth):
        mean, ends = method.margin
        interval = "" if ends is None else f" [{ends[0]:+.1f}, {ends[1]:+.1f}]"
        held = (method.holding(n) for n in GROUP_SIZES)
        rows.append(
            (
                Cell(method.label),
                Cell(f"{mean:+.1f}{interval}", mean),
                Cell("two modes" if method.two_modes else _truth_text(method.truth("depth"))),
                *map(Cell, table_texts(method, "depth")),
                *(Cell(f"{hits} of {groups}" if groups else "–") for hits, groups in held),
            )
        )
    note = (
        "Margin over the own frozen baseline, over all seeds, with its 95% t interval. For 1, 3 and 5 seeds: groups "
        "whose depth claim stands / is walked back / is undecided. Interval holds it: groups whose printed interval "
        "contains the margin over all seeds; that of 1 seed is over samples of this checkpoint and does not promise it."
        " Methods with an own loop are judged by accuracies and the size of the test set."
    )
    return Table("depth", "Depth claims by method", heads, tuple(rows), f"{_seed_words(places, seeds)} {note}")


def alignment_table(methods: Sequence[KnownMethod], places: Sequence[str], seeds: Sequence[int]) -> Table:
    heads = ("method", "aligned", *map(seeds_text, GROUP_SIZES), "decided by, 1 seed")
    rows = tuple(
        (
            Cell(method.label),
            Cell(_truth_text(method.truth("alignment"))),
            *map(Cell, table_texts(method, "alignment")),
            Cell(_counts_text(method.rows(1))),
        )
        for method in methods
        if not method.two_modes
    )
    note = (
        "Aligned: whether the credit is aligned in every block by construction; not counted where that is not known. "
        "For 1, 3 and 5 seeds: groups whose alignment claim passes / is walked back / is undecided. Decided by: rows "
        "of the claim's table, with the number of seeds."
    )
    return Table("alignment", "Alignment claims by method", heads, rows, f"{_seed_words(places, seeds)} {note}")


def _counts_text(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
