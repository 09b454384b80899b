"""Across networks: on which of them do feedback rules outgrow their scale, and where does the reference collapse?

Papers: P1 sections 3 and 5, P2 section 4.1 and table 2
Claim: scale growth befalls FA and DFA everywhere; reference collapse only where there is a terminal norm
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from walkback.core.configuration import RunConfig
from walkback.report.cells import Cell
from walkback.report.study_report import CellGrid, Figure, Finding, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    check_fails,
    combined_finding,
    is_above,
    make_study_report,
    margin_cell,
    mean_cell,
    method_label,
    not_,
    passes_cell,
    range_cell,
    verdict_cell,
)


@dataclass(frozen=True)
class Where:
    """A network of this study."""

    words: str
    normed: bool
    """Whether its head begins with a norm."""
    epochs: str = "full"


NETWORKS = {
    "resmlp": Where("ResMLP", True),
    "no_norm": Where("ResMLP, no norm", False),
    "vit": Where("ViT-Mini", True, "vit"),
    "student": Where("StudentNet", False),
    "cnn": Where("CNN, BatchNorm", False, "vit"),
}
_RULES = ("BP", "FA", "DFA")
_Found = dict[str, dict[str, list[Case]]]
"""Cases by network and by method's name."""

MODE_1 = ("network", "terminal norm", "scale stable", "reference valid")
_NUMBERS = ("network, method", "accuracy", "shell", "margin, pp", "over bp shell, pp", "growth", "‖h_L‖", "‖g_L‖ @128")
_FLAGS = (
    "network, method", "terminal norm", "scale stable", "reference valid", "depth useful", "float64 direction at L",
    "three", "four",
)  # fmt: skip


class CrossArchitecture(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [config for place in NETWORKS for config in runs_at(place, scale)]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found = {place: by_name(results, runs_at(place, scale)) for place in NETWORKS}
        cases = [case for methods in found.values() for each in methods.values() for case in each]
        told = caption(
            scale, cases, f"ViT and CNN: {scale.epochs['vit']} epochs. Growth and norms: smallest to largest seed."
        )
        rows = list(_rows(found))
        tables = [
            Table("mode-1", "Mode 1 by network", MODE_1, tuple(_mode_1(found)), told, _NOTES),
            Table("flags", "Flags and verdicts", _FLAGS, tuple(_flags(*row) for row in rows), told),
            Table("numbers", "What they rest on", _NUMBERS, tuple(_numbers(*row) for row in rows), told),
        ]
        return make_study_report(
            "cross-architecture",
            "Across networks",
            "On which networks do feedback rules outgrow their scale, and where does the reference collapse?",
            scale,
            cases,
            _findings(found),
            tables=tables,
            figures=[_figure(found, told)],
        )


_NOTES = ("BP / FA / DFA, each: yes where the check passes in every seed, no where it fails.",)


def runs_at(place: str, scale: Scale) -> list[RunConfig]:
    """Backprop, FA and DFA on one network, of this study or another."""
    epochs = NETWORKS[place].epochs if place in NETWORKS else "full"
    return scale.runs([METHODS[name] for name in _RULES], place=place, epochs=epochs)


def by_name(results: Results, configs: Sequence[RunConfig]) -> dict[str, list[Case]]:
    """The cases of each method by the name that tables show."""
    return {method_label(method): cases for method, cases in results.by_method(configs).items()}


def _rows(found: _Found) -> Iterator[tuple[str, Where, list[Case]]]:
    for place, methods in found.items():
        where = NETWORKS[place]
        for name, cases in methods.items():
            yield f"{where.words}: {name}", where, cases


def _mode_1(found: _Found) -> Iterator[tuple[Cell, ...]]:
    """As P2's table 2 has it."""
    for place, methods in found.items():
        where = NETWORKS[place]
        answers = [" / ".join(passes_cell(cases, check).text for cases in methods.values()) for check in ("D1", "D2")]
        yield (Cell(where.words), Cell("yes" if where.normed else "no"), *map(Cell, answers))


def _flags(name: str, where: Where, cases: list[Case]) -> tuple[Cell, ...]:
    directions = dict.fromkeys(case.report.quantities.top.direction.status for case in cases)
    return (
        Cell(name),
        Cell("yes" if where.normed else "no"),
        *(passes_cell(cases, check) for check in ("D1", "D2", "D3")),
        Cell(" or ".join(directions)),
        verdict_cell(cases, "three"),
        verdict_cell(cases, "four"),
    )


def _numbers(name: str, where: Where, cases: list[Case]) -> tuple[Cell, ...]:
    evidence = cases[0].report.evidence
    return (
        Cell(name),
        mean_cell([case.accuracy for case in cases], ".3f"),
        mean_cell(evidence.frozen.get("method_shell", ()), ".3f"),
        margin_cell(evidence.margin("method_shell")),
        margin_cell(evidence.margin("bp_shell")),
        range_cell([case.report.flags["D1"].value for case in cases]),
        range_cell([case.report.quantities.top.hidden_norm.value for case in cases]),
        range_cell([case.report.flags["D2"].value for case in cases]),
    )


def _findings(found: _Found) -> list[Finding]:
    papers = [place for place in NETWORKS if place != "cnn"]
    grown = {
        f"{name} on {NETWORKS[p].words}": check_fails(found[p][name], "D1") for p in papers for name in ("FA", "DFA")
    }
    bare = [place for place in NETWORKS if not NETWORKS[place].normed]
    kept = {
        f"{name} on {NETWORKS[p].words}": not_(check_fails(found[p][name], "D2"))
        for p in bare
        for name in ("FA", "DFA")
    }
    lost = {f"DFA on {NETWORKS[p].words}": check_fails(found[p]["DFA"], "D2") for p in NETWORKS if NETWORKS[p].normed}
    calm = {f"BP on {NETWORKS[p].words}": _calm(found[p]["BP"]) for p in NETWORKS}
    fa = {
        "FA's reference is valid on the ResMLP": not_(check_fails(found["resmlp"]["FA"], "D2")),
        "FA's reference collapses on the ViT": check_fails(found["vit"]["FA"], "D2"),
    }
    cnn = {
        "D1 fires on DFA": check_fails(found["cnn"]["DFA"], "D1"),
        "D2 does not": not_(check_fails(found["cnn"]["DFA"], "D2")),
    }
    worse = {name: is_above(found["vit"][name][0].report.evidence.margin("bp_shell")) for name in ("FA", "DFA")}
    return [
        combined_finding("Scale growth (1a) befalls FA and DFA on every network of the papers.", grown),
        combined_finding("Without a terminal norm the reference does not collapse (1b) under FA and DFA.", kept),
        combined_finding("With a terminal norm DFA's reference collapses.", lost),
        combined_finding(
            "Modes belong to a network and a rule together: FA keeps its reference on the ResMLP, not on the ViT.", fa
        ),
        combined_finding("On the CNN with BatchNorm DFA outgrows its scale and keeps its reference.", cnn),
        combined_finding("Backprop raises neither flag on any network.", calm),
        combined_finding(
            "On the ViT the trained blocks of FA and DFA do worse than random blocks in a shell trained by backprop.",
            {name: not_(answer) for name, answer in worse.items()},
        ),
        _student(found),
    ]


def _student(found: _Found) -> Finding:
    """Whether frozen blocks are enough there."""
    flag = found["student"]["DFA"][0].report.flags["D3"]
    holds = None if flag.status == "missing" else flag.status == "not_informative"
    return Finding(
        "On StudentNet depth utility says nothing: frozen blocks do as well as backprop.", holds, f"D3: {flag.reason}."
    )


def _calm(cases: list[Case]) -> bool | None:
    return all_true(not_(check_fails(cases, check)) for check in ("D1", "D2"))


def _figure(found: _Found, words: str) -> Figure:
    """The flags of every pair as fields."""

    def grid(title: str, check: str) -> CellGrid:
        cells = tuple(tuple(_word(check_fails(found[place][name], check)) for name in _RULES) for place in NETWORKS)
        return CellGrid(title, _RULES, tuple(where.words for where in NETWORKS.values()), cells)

    plots = (grid("D1: scale growth", "D1"), grid("D2: reference collapse", "D2"), grid("D3: no depth utility", "D3"))
    said = f"Raised or clear: in every seed; open: mixed, missing or not informative. {words}"
    return Figure("flags", "Which flags each network and rule raise", plots, said, columns=3)


def _word(answer: bool | None) -> str:
    return {True: "raised", False: "clear", None: "open"}[answer]


STUDY = CrossArchitecture()
