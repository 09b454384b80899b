"""Across networks: on which of them do hidden states grow under feedback rules, and where does the reference collapse?

Papers: P1 sections 3 and 5, P2 section 4.1 and table 2
Claim: hidden states grow under FA and DFA everywhere; the reference collapses only where there is a terminal norm
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from walkback.core.configuration import RunConfig
from walkback.report.cells import Cell
from walkback.report.study_report import CellGrid, Figure, Finding, StudyReport, Table
from walkback_papers.plots import listed
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
class NetworkInfo:
    """A network of this study."""

    label: str
    """As tables show it."""
    has_terminal_norm: bool
    """Whether its head begins with a norm."""
    epochs: str = "full"


NETWORKS = {
    "resmlp": NetworkInfo("ResMLP", True),
    "no_norm": NetworkInfo("ResMLP, no norm", False),
    "vit": NetworkInfo("ViT-Mini", True, "vit"),
    "student": NetworkInfo("StudentNet", False),
    "cnn": NetworkInfo("CNN, BatchNorm", False, "vit"),
}
_RULES = ("BP", "FA", "DFA")
_CHECKS = ("D1", "D2", "D3")
_Found = dict[str, dict[str, list[Case]]]
"""Cases by network and by method's name."""

MODE_1 = ("network", "terminal norm", "scale stable", "reference valid")
_NUMBERS = (
    "network, method", "accuracy", "frozen baseline", "margin, pp", "over bp frozen, pp", "growth (D1)", "‖h_L‖",
    "‖g_L‖ @128",
)  # fmt: skip
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
        table_caption = caption(
            scale, cases, f"ViT and CNN: {scale.epochs['vit']} epochs. Growth (D1) and norms: smallest to largest seed."
        )
        rows = list(_rows(found))
        tables = [
            Table("mode-1", "Mode 1 by network", MODE_1, tuple(_mode_1(found)), table_caption, _NOTES),
            Table("flags", "Flags and verdicts", _FLAGS, tuple(_flags(*row) for row in rows), table_caption),
            Table(
                "numbers", "Numbers behind the flags", _NUMBERS, tuple(_numbers(*row) for row in rows), table_caption
            ),
        ]
        return make_study_report(
            "cross-architecture",
            "Across networks",
            "On which networks do hidden states grow under feedback rules, and where does the reference collapse?",
            scale,
            cases,
            _findings(found),
            tables=tables,
            figures=[_figure(found, table_caption)],
        )


_NOTES = ("BP / FA / DFA, each: yes where the check passes in every seed, no where it fails.",)


def runs_at(place: str, scale: Scale) -> list[RunConfig]:
    """Runs of backprop, FA and DFA on one network, of this study or another."""
    epochs = NETWORKS[place].epochs if place in NETWORKS else "full"
    return scale.runs([METHODS[name] for name in _RULES], place=place, epochs=epochs)


def by_name(results: Results, configs: Sequence[RunConfig]) -> dict[str, list[Case]]:
    """The cases of each method, by the method's name as tables show it."""
    return {method_label(method): cases for method, cases in results.by_method(configs).items()}


def _rows(found: _Found) -> Iterator[tuple[str, NetworkInfo, list[Case]]]:
    for place, methods in found.items():
        network = NETWORKS[place]
        for name, cases in methods.items():
            yield f"{network.label}: {name}", network, cases


def _mode_1(found: _Found) -> Iterator[tuple[Cell, ...]]:
    """The rows of P2's table 2."""
    for place, methods in found.items():
        network = NETWORKS[place]
        answers = [" / ".join(passes_cell(cases, check).text for cases in methods.values()) for check in ("D1", "D2")]
        yield (Cell(network.label), Cell("yes" if network.has_terminal_norm else "no"), *map(Cell, answers))


def _flags(name: str, network: NetworkInfo, cases: list[Case]) -> tuple[Cell, ...]:
    directions = dict.fromkeys(case.report.quantities.top.direction.status for case in cases)
    return (
        Cell(name),
        Cell("yes" if network.has_terminal_norm else "no"),
        *(passes_cell(cases, check) for check in ("D1", "D2", "D3")),
        Cell(" or ".join(directions)),
        verdict_cell(cases, "three"),
        verdict_cell(cases, "four"),
    )


def _numbers(name: str, network: NetworkInfo, cases: list[Case]) -> tuple[Cell, ...]:
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
    grows = {
        f"{name} on {NETWORKS[p].label}": check_fails(found[p][name], "D1") for p in papers for name in ("FA", "DFA")
    }
    without_norm = [place for place in NETWORKS if not NETWORKS[place].has_terminal_norm]
    not_collapsed = {
        f"{name} on {NETWORKS[p].label}": not_(check_fails(found[p][name], "D2"))
        for p in without_norm
        for name in ("FA", "DFA")
    }
    collapses = {
        f"DFA on {NETWORKS[p].label}": check_fails(found[p]["DFA"], "D2")
        for p in NETWORKS
        if NETWORKS[p].has_terminal_norm
    }
    bp_passes = {f"BP on {NETWORKS[p].label}": _passes_both(found[p]["BP"]) for p in NETWORKS}
    fa = {
        "FA's reference is valid on the ResMLP": not_(check_fails(found["resmlp"]["FA"], "D2")),
        "FA's reference collapses on the ViT": check_fails(found["vit"]["FA"], "D2"),
    }
    cnn = {
        "DFA fails D1": check_fails(found["cnn"]["DFA"], "D1"),
        "DFA passes D2": not_(check_fails(found["cnn"]["DFA"], "D2")),
    }
    gains = {name: is_above(found["vit"][name][0].report.evidence.margin("bp_shell")) for name in ("FA", "DFA")}
    return [
        combined_finding(
            "fa-dfa-grow", "Hidden states grow (Mode 1a) under FA and DFA on every network of the papers.", grows
        ),
        combined_finding(
            "no-collapse-without-norm",
            "Without a terminal norm the reference does not collapse (Mode 1b) under FA and DFA.",
            not_collapsed,
        ),
        combined_finding("dfa-collapses-with-norm", "With a terminal norm DFA's reference collapses.", collapses),
        combined_finding(
            "fa-mode-depends-on-network",
            "A mode depends on the network and the rule: FA's reference stays valid on the ResMLP, not on the ViT.",
            fa,
        ),
        combined_finding(
            "cnn-grows-without-collapse",
            "On the CNN with BatchNorm DFA's hidden states grow and its reference stays valid.",
            cnn,
        ),
        combined_finding("bp-passes", "Backprop passes D1 and D2 on every network.", bp_passes),
        combined_finding(
            "vit-worse-than-bp-baseline",
            "On the ViT the trained blocks of FA and DFA do worse than backprop's frozen baseline.",
            {name: not_(is_gain) for name, is_gain in gains.items()},
        ),
        _student(found),
    ]


def _student(found: _Found) -> Finding:
    """Whether D3 is not informative on StudentNet because frozen blocks are enough."""
    flag = found["student"]["DFA"][0].report.flags["D3"]
    holds = None if flag.status == "missing" else flag.status == "not_informative"
    return Finding(
        "student-depth-not-informative",
        "On StudentNet D3 is not informative: frozen blocks do as well as backprop.",
        holds,
        f"D3: {flag.reason}.",
    )


def _passes_both(cases: list[Case]) -> bool | None:
    """Whether D1 and D2 both pass in every seed."""
    return all_true(not_(check_fails(cases, check)) for check in ("D1", "D2"))


def _figure(found: _Found, caption_text: str) -> Figure:
    """D1, D2 and D3 of every network and rule as coloured cells."""

    def grid(title: str, check: str) -> CellGrid:
        cells = tuple(
            tuple(_grid_word(check_fails(found[place][name], check)) for name in _RULES) for place in NETWORKS
        )
        return CellGrid(title, _RULES, tuple(network.label for network in NETWORKS.values()), cells)

    names = dict(zip(_CHECKS, ("growth (D1)", "reference (D2)", "depth utility (D3)"), strict=True))
    plots = tuple(grid(f"{name[0].upper()}{name[1:]}", check) for check, name in names.items())
    figure_caption = f"Fails or passes: in every seed; undecided: mixed, missing or not informative. {caption_text}"
    counts = {check: sum(check_fails(found[place]["DFA"], check) is True for place in NETWORKS) for check in _CHECKS}
    words = listed([f"{names[check]} on {count}" for check, count in counts.items()])
    title = f"Of {len(NETWORKS)} networks DFA fails {words}"
    return Figure("flags", title, plots, figure_caption, columns=3)


def _grid_word(answer: bool | None) -> str:
    """The stored word of a grid cell: a check fails in every seed, passes in every seed, or neither."""
    return {True: "raised", False: "clear", None: "open"}[answer]


STUDY = CrossArchitecture()
