"""Decision utility: which failures are found by reading more and more of the protocol?

Papers: P1 section 6 and figure 5, P2 section 5.2, tables 4 and 5
Claim: accuracy and alignment find none; Mode 1 finds the degenerate ones; depth utility finds those Mode 1 misses
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from walkback.core.configuration import RunConfig
from walkback.judge.editions import Outcome
from walkback.judge.threshold_sweep import STRATEGIES, strategies
from walkback.report.cells import Cell
from walkback.report.study_report import CellGrid, Figure, Finding, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import AUDITED_METHODS, Scale
from walkback_papers.studies.cross_architecture import by_name, runs_at
from walkback_papers.study import Study
from walkback_papers.tables import caption, combined_finding, make_study_report, mean_cell, not_, unanimous

THREE = ("S0", "S1", "S2", "S3")
FOUR_METHODS = ("+(a)", "+(b)", "+(c)", "+(d)", "full")
_DEGENERATE = ("DFA", "State Bridge", "Credit Bridge")
"""The primary audit's failures, as the first paper lists them."""
WIDE, _VIT = " wide", " ViT"
"""Suffixes of a method's name for networks other than the primary audit's."""
_CHECKS_NOTE = (
    "D1: the hidden states grow from block to block; D2: the reference gradient is under its floor; D3: trained blocks "
    "are no better than frozen ones; direction: the last states keep one direction."
)
_ORDER: tuple[Outcome, ...] = ("walked_back", "inconclusive", "trustworthy")


class DecisionUtility(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [*_primary(scale), *runs_at("wide", scale), *runs_at("vit", scale)]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found = by_name(results, _primary(scale))
        found |= {f"{name}{WIDE}": cases for name, cases in by_name(results, runs_at("wide", scale)).items()}
        found |= {f"{name}{_VIT}": cases for name, cases in by_name(results, runs_at("vit", scale)).items()}
        cases = [case for each in found.values() for case in each]
        note = (
            f"ViT: {scale.epochs['vit']} epochs. A cell is the worst of the seeds' verdicts. A failure "
            "is defined by D3, so S3 and +(d) find all by definition."
        )
        table_caption = caption(scale, cases, note)
        tables = [
            _table("three", "Edition three: verdict by strategy", THREE, found, table_caption),
            _table("four", "Edition four: verdict of each diagnostic alone", FOUR_METHODS, found, table_caption),
        ]
        return make_study_report(
            "decision-utility",
            "Decision utility",
            "Which failures are found by reading more and more of the protocol?",
            scale,
            cases,
            _findings(found),
            tables=tables,
            figures=[_figure(found, table_caption)],
        )


def _primary(scale: Scale) -> list[RunConfig]:
    return scale.runs(AUDITED_METHODS)


def _worst(cases: Sequence[Case], strategy: str) -> Outcome:
    """The worst verdict of a strategy over the seeds."""
    return min((strategies(case.report)[strategy] for case in cases), key=_ORDER.index)


def _walked_back(cases: Sequence[Case], strategy: str) -> bool | None:
    """Whether a strategy walks the case back: in every seed, in none, or None."""
    known = {"walked_back": True, "trustworthy": False}
    return unanimous(known.get(strategies(case.report)[strategy]) for case in cases)


def _table(name: str, title: str, rows: Sequence[str], found: Mapping[str, list[Case]], caption_text: str) -> Table:
    """A row for each case: its accuracy, its alignment, and a verdict for each strategy."""
    heads = ("case", "accuracy", "margin, pp", *rows)
    cells = tuple(
        (
            Cell(case),
            mean_cell([each.accuracy for each in cases], ".3f"),
            mean_cell([cases[0].report.flags["D3"].value], "+.1f"),
            *(_cell(cases, strategy) for strategy in rows),
        )
        for case, cases in found.items()
    )
    notes = tuple(f"{row}: {STRATEGIES[row].summary}." for row in rows)
    return Table(name, title, heads, cells, caption_text, notes)


def _cell(cases: Sequence[Case], strategy: str) -> Cell:
    outcome = _worst(cases, strategy)
    alike = sum(strategies(case.report)[strategy] == outcome for case in cases)
    share = "" if alike == len(cases) else f" in {alike} of {len(cases)}"
    return Cell(f"{outcome.replace('_', ' ')}{share}")


def _findings(found: Mapping[str, list[Case]]) -> list[Finding]:
    def walked_back_by(strategy: str, names: Sequence[str]) -> dict[str, bool | None]:
        return {name: _walked_back(found[name], strategy) for name in names}

    def passes(strategy: str, names: Sequence[str]) -> dict[str, bool | None]:
        return {f"{name} under {strategy}": not_(_walked_back(found[name], strategy)) for name in names}

    failing = [name for name, cases in found.items() if _walked_back(cases, "+(d)")]
    healthy = {key: answer for s in STRATEGIES for key, answer in passes(s, ["BP"]).items()}
    passed_by_s0_s1 = passes("S0", failing) | passes("S1", failing)
    return [
        combined_finding(
            "accuracy-finds-nothing",
            "Accuracy, and accuracy with alignment, walk nothing back (they contain no check).",
            passed_by_s0_s1,
        ),
        combined_finding(
            "mode-1-finds-dfa",
            "The Mode 1 check (S2) finds DFA on the ResMLP, and DFA and FA on the ViT.",
            walked_back_by("S2", ["DFA", "DFA ViT", "FA ViT"]),
        ),
        combined_finding(
            "wide-fa-needs-depth-utility",
            "FA on the wide, shallow ResMLP is missed by the Mode 1 check and found by depth utility.",
            passes("S2", ["FA wide"]) | {"found by S3": _walked_back(found["FA wide"], "S3")},
        ),
        combined_finding(
            "s3-finds-all",
            "S3 finds all four failures of the later paper.",
            walked_back_by("S3", ["DFA", "FA wide", "DFA ViT", "FA ViT"]),
        ),
        combined_finding("bp-passes", "Backprop passes under every strategy.", healthy),
        *(
            combined_finding(
                f"{letter}-finds-degenerate",
                f"+({letter}) alone finds DFA and both bridges.",
                walked_back_by(f"+({letter})", _DEGENERATE),
            )
            for letter in "abd"
        ),
        combined_finding(
            "c-misses-dfa",
            "+(c) alone finds both bridges and not DFA.",
            walked_back_by("+(c)", _DEGENERATE[1:]) | passes("+(c)", _DEGENERATE[:1]),
        ),
        _each_needed(found),
    ]


def _each_needed(found: Mapping[str, list[Case]]) -> Finding:
    """Whether each of the two groups of checks finds something that the other does not."""
    only_mode_1 = [
        n for n, cases in found.items() if _walked_back(cases, "S2") and _walked_back(cases, "+(d)") is False
    ]
    only_depth = [n for n, cases in found.items() if _walked_back(cases, "+(d)") and _walked_back(cases, "S2") is False]
    details = (
        f"Found by Mode 1 (D1 and D2) alone: {', '.join(only_mode_1) or 'nothing'}; by depth utility alone: "
        f"{', '.join(only_depth) or 'nothing'}."
    )
    holds = bool(only_mode_1) and bool(only_depth)
    return Finding("both-needed", "Mode 1 and depth utility each find a case that the other misses.", holds, details)


def _figure(found: Mapping[str, list[Case]], caption_text: str) -> Figure:
    """A row for each strategy, with what it reads; a column for each case."""

    def grid(title: str, rows: Sequence[str], columns: Sequence[str]) -> CellGrid:
        cells = tuple(tuple(_worst(found[name], strategy) for name in columns) for strategy in rows)
        return CellGrid(title, tuple(columns), tuple(f"{name}: {STRATEGIES[name].summary}" for name in rows), cells)

    others = [name for name in found if name.endswith((WIDE, _VIT))]
    audit = [name for name in found if name not in others]
    plots = tuple(
        grid(f"{what}, edition {edition}", rows, columns)
        for edition, rows in (("three", THREE), ("four", FOUR_METHODS))
        for what, columns in (("Primary audit", audit), ("Wide and ViT", others))
    )
    failing = [name for name, cases in found.items() if _walked_back(cases, "+(d)")]
    seen = {strategy: sum(_walked_back(found[name], strategy) is True for name in failing) for strategy in ("S1", "S2")}
    title = (
        f"Of {len(failing)} cases whose trained blocks are of no use, accuracy and alignment find {seen['S1']}, "
        f"growth with collapse {seen['S2']}"
    )
    return Figure("strategies", title, plots, f"{_CHECKS_NOTE} {caption_text}")


STUDY = DecisionUtility()
