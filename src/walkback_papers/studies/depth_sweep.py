"""The depth sweep: at one width, which check fails at which depth?

Papers: the outline names one width of 512 and no depth; no paper prints the sweep
Claim: DFA fails D1 and D2 at every depth
"""

from __future__ import annotations

from collections.abc import Sequence

from walkback.core.configuration import RunConfig
from walkback.judge.statistics import Margin
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import BAND, message, series_of
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    check_cell,
    check_fails,
    claim_over_seeds,
    depth_fails,
    is_mode_1,
    make_study_report,
    margin_cell,
    mean_cell,
    method_label,
    not_,
    numbers_cell,
    range_cell,
    verdict_cell,
)

DEPTH_METHODS = tuple(METHODS[name] for name in ("BP", "FA", "DFA"))
DEPTH_SIZES = {"smoke": ("resmlp:d=32", (2, 4, 6), "full"), "paper": ("resmlp:d=512", (2, 4, 8, 12), "short")}
"""By scale: the network, its depths and the kind of training. If DFA's hidden states explode, they do so within 30
epochs."""
_HEADS = (
    "method", "L", "accuracy", "over frozen, pp", "deep cosine", "growth (D1)", "‖g_L‖ @128", "D1", "D2", "D3", "three",
    "depth",
)  # fmt: skip
_Swept = dict[str, dict[int, list[Case]]]
"""Cases by the method's name and the depth."""


class DepthSweep(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        arch, depths, epochs = DEPTH_SIZES[scale.name]
        networks = [f"{arch},depth={depth}" for depth in depths]
        return [config for network in networks for config in scale.runs(DEPTH_METHODS, arch=network, epochs=epochs)]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        swept: _Swept = {}
        for case in cases:
            swept.setdefault(method_label(case.method), {}).setdefault(case.resolved.net.depth, []).append(case)
        table = Table(
            "depths",
            "Checks by depth",
            _HEADS,
            tuple(_row(name, found) for name, depths in swept.items() for found in depths.values()),
            caption(
                scale,
                cases,
                "Growth (D1) and gradients: smallest to largest seed. Over frozen: over the own frozen baseline.",
            ),
        )
        arch = DEPTH_SIZES[scale.name][0]
        return make_study_report(
            "depth-sweep",
            "Depth sweep",
            f"Which check fails at which depth of {arch.replace(':', ' ')}?",
            scale,
            cases,
            _findings(swept),
            tables=[table],
            figures=[_figure(swept, caption(scale, cases, BAND))],
        )


def _row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    return (
        Cell(name),
        Cell(str(cases[0].resolved.net.depth)),
        mean_cell([case.accuracy for case in cases], ".3f"),
        margin_cell(_margin(cases)),
        numbers_cell(cases, lambda case: case.report.quantities.aggregates.deep_mean, "+.3f"),
        *(range_cell([case.report.flags[check].value for case in cases]) for check in ("D1", "D2")),
        *(check_cell(cases, check) for check in ("D1", "D2", "D3")),
        verdict_cell(cases, "three"),
        Cell(claim_over_seeds(cases, "depth").shown),
    )


def _margin(cases: Sequence[Case]) -> Margin | None:
    return cases[0].report.margin


def _findings(swept: _Swept) -> list[Finding]:
    bp, fa, dfa = swept["BP"], swept["FA"], swept["DFA"]
    return [
        Finding(
            "bp-passes",
            "Backprop passes at every depth.",
            all(verdict_cell(cases, "three").text == "trustworthy" for cases in bp.values()),
            _by_depth({depth: verdict_cell(cases, "three").text for depth, cases in bp.items()}),
        ),
        *(_fails_everywhere(check, dfa) for check in ("D1", "D2")),
        Finding(
            "fa-not-mode-1",
            "FA is not in Mode 1 at any depth.",
            all_true(not_(is_mode_1(cases)) for cases in fa.values()),
            _by_depth({depth: _yes_no(is_mode_1(cases)) for depth, cases in fa.items()}),
        ),
        *(
            Finding(
                f"{name.lower()}-depth-fails",
                f"{name}'s trained blocks beat its frozen ones at no depth.",
                all_true(depth_fails(cases) for cases in swept[name].values()),
                _by_depth({depth: f"{margin_cell(_margin(cases)).text} pp" for depth, cases in swept[name].items()}),
            )
            for name in ("FA", "DFA")
        ),
    ]


def _fails_everywhere(check: str, dfa: dict[int, list[Case]]) -> Finding:
    values = {
        depth: range_cell([case.report.flags[check].value for case in cases]).text for depth, cases in dfa.items()
    }
    answers = {depth: check_fails(cases, check) for depth, cases in dfa.items()}
    texts = {depth: f"{_yes_no(answers[depth])} ({values[depth]})" for depth in dfa}
    claim = f"DFA fails {check} at every depth."
    return Finding(f"dfa-fails-{check.lower()}", claim, all_true(answers.values()), _by_depth(texts))


def _yes_no(answer: bool | None) -> str:
    return {True: "yes", False: "no", None: "seeds differ or unknown"}[answer]


def _by_depth(texts: dict[int, str]) -> str:
    return f"{'; '.join(f'L = {depth}: {text}' for depth, text in texts.items())}."


def _figure(swept: _Swept, caption_text: str) -> Figure:
    t = DiagnosticThresholds()

    def flag(case: Case, check: str) -> float | None:
        return case.report.flags[check].value

    def series(name: str, get: str) -> Series:
        columns = [
            [case.accuracy if get == "accuracy" else flag(case, get) for case in cases]
            for cases in swept[name].values()
        ]
        known = [[v for v in column if v is not None] if None not in column else [] for column in columns]
        return series_of(name, list(swept[name]), known)

    def plot(title: str, get: str, log: bool, levels: dict[str, float]) -> Plot:
        return Plot(title, "blocks L", "", tuple(series(name, get) for name in swept), y_log=log, levels=levels)

    plots = (
        plot("growth (D1)", "D1", True, {"D1 limit": t.h_norm_explosion_ratio}),
        plot("‖g_L‖ @128", "D2", True, {"D2 floor": t.g_norm_floor}),
        plot("test accuracy", "accuracy", False, {}),
    )
    fails = all_true(check_fails(cases, check) for cases in swept["DFA"].values() for check in ("D1", "D2"))
    title = message(fails, "DFA fails growth (D1) and reference (D2) at every depth", "Growth, reference and accuracy")
    return Figure("depths", title, plots, caption_text, columns=3)


STUDY = DepthSweep()
