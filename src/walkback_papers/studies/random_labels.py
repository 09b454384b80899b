"""Random labels: do DFA's explosion and the methods' alignment need a task that can be learned?

Papers: none; a control of our own
Claim: open; if the rule alone causes growth, collapse and alignment, they occur with random labels too
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.aggregates import Aggregates
from walkback.judge.layers import LayerCredit
from walkback.report.cells import Cell, tidy
from walkback.report.study_report import Figure, Finding, Plot, StudyReport, Table
from walkback_papers.plots import BAND, LayerQuantity, in_same_range, listed, over_layers
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    caption,
    check_cell,
    check_fails,
    check_values,
    claim_over_seeds,
    kebab,
    make_study_report,
    mean_cell,
    method_label,
    numbers_cell,
    outside_null,
    range_cell,
    with_random_labels,
)

RANDOM_LABEL_METHODS = (*(METHODS[name] for name in ("BP", "FA", "DFA")), *RAW)
_HEADS = (
    "method", "labels", "train acc.", "test acc.", "layer 0", "deep cosine", "growth (D1)", "‖g_L‖ @128", "D1", "D2",
    "alignment",
)  # fmt: skip
Both = dict[str, dict[str, list[Case]]]
"""Cases by the labels (true, random) and the method's name."""


class RandomLabels(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [*scale.runs(RANDOM_LABEL_METHODS), *_random(scale)]

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        grids = {"true": scale.runs(RANDOM_LABEL_METHODS), "random": _random(scale)}
        both: Both = {
            words: {method_label(method): cases for method, cases in results.by_method(configs).items()}
            for words, configs in grids.items()
        }
        cases = [case for found in both.values() for each in found.values() for case in each]
        note = (
            "Random: the training labels permuted once, the same for every run. Measured and tested on true labels. "
            "Training accuracy: mean over the last epoch. Growth (D1) and gradients: smallest to largest seed."
        )
        table = Table(
            "labels",
            "True and random labels",
            _HEADS,
            tuple(_row(words, name, both[words][name]) for name in both["true"] for words in both),
            caption(scale, cases, note),
        )
        return make_study_report(
            "random-labels",
            "Random labels",
            "Do the explosion and the alignment need a task that can be learned?",
            scale,
            cases,
            _findings(both),
            tables=[table],
            figures=[_figure(both, caption(scale, cases, BAND))],
        )


def _random(scale: Scale) -> list[RunConfig]:
    return scale.runs(RANDOM_LABEL_METHODS, data=with_random_labels(scale.places["resmlp"].data))


def _row(words: str, name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    return (
        Cell(name),
        Cell(words),
        mean_cell([float(case.log[-1]["train_acc"]) for case in cases], ".3f"),
        mean_cell([case.accuracy for case in cases], ".3f"),
        numbers_cell(cases, lambda case: _layer_0(case).cos, "+.3f"),
        numbers_cell(cases, lambda case: _aggregates(case).deep_mean, "+.3f"),
        *(range_cell([case.report.flags[check].value for case in cases]) for check in ("D1", "D2")),
        *(check_cell(cases, check) for check in ("D1", "D2")),
        Cell(claim_over_seeds(cases, "alignment").shown),
    )


def _findings(both: Both) -> list[Finding]:
    true, random = both["true"], both["random"]
    chance = 1 / random["BP"][0].resolved.source.classes
    best = max(case.accuracy for cases in random.values() for case in cases)
    dfa = [true["DFA"], random["DFA"]]
    return [
        Finding(
            "no-test-accuracy",
            "Random labels teach nothing about the test set: every run stays under twice chance.",
            best < 2 * chance,
            f"Best test accuracy {best:.3f}, chance {chance:.3f}.",
        ),
        Finding(
            "dfa-grows",
            "DFA's states grow on random labels too (D1).",
            _also_without_task(*(check_fails(cases, "D1") for cases in dfa)),
            f"True labels: {check_values(dfa[0], 'D1')} Random: {check_values(dfa[1], 'D1')}",
        ),
        Finding(
            "dfa-collapses",
            "DFA's reference collapses on random labels too (D2).",
            _also_without_task(*(check_fails(cases, "D2") for cases in dfa)),
            f"True labels: {check_values(dfa[0], 'D2')} Random: {check_values(dfa[1], 'D2')}",
        ),
        *(
            Finding(
                f"{kebab(name)}-layer-0-aligned",
                f"{name}'s layer 0 is aligned on random labels too.",
                _also_without_task(
                    *(outside_null(found[name], lambda case: _layer_0(case).z) for found in (true, random))
                ),
                f"Cosine {_first_text(true[name])} with true labels, {_first_text(random[name])} with random ones.",
            )
            for name in ("FA", "DFA", "DFA raw")
        ),
        Finding(
            "fa-deep-aligned",
            "FA's deep alignment does not need the task.",
            _also_without_task(
                *(outside_null(found["FA"], lambda case: _aggregates(case).deep_mean_z) for found in (true, random))
            ),
            f"Deep cosine {_deep_text(true['FA'])} with true labels, {_deep_text(random['FA'])} with random ones.",
        ),
    ]


def _also_without_task(with_task: bool | None, without: bool | None) -> bool | None:
    """Whether something that occurs with true labels occurs with random ones; None where it does not with true ones."""
    return without if with_task else None


def _layer_0(case: Case) -> LayerCredit:
    """The credit at layer 0."""
    credit = case.report.quantities.layers[0].credit
    assert credit is not None
    return credit


def _first_text(cases: Sequence[Case]) -> str:
    return numbers_cell(cases, lambda case: _layer_0(case).cos, "+.3f").text


def _deep_text(cases: Sequence[Case]) -> str:
    return numbers_cell(cases, lambda case: _aggregates(case).deep_mean, "+.3f").text


def _aggregates(case: Case) -> Aggregates:
    return case.report.quantities.aggregates


def _top_norm(cases: Sequence[Case]) -> float | None:
    """The mean ‖h_L‖ over seeds."""
    norms = [case.report.quantities.top.hidden_norm for case in cases]
    return fmean(norm.known for norm in norms) if all(norm.ok for norm in norms) else None


def _figure(both: Both, words: str) -> Figure:
    def plot(labels: str, what: LayerQuantity, shown: str, log: bool) -> Plot:
        found = {name: [case.report.quantities for case in cases] for name, cases in both[labels].items()}
        series = tuple(over_layers(name, seeds, what) for name, seeds in found.items())
        return Plot(f"{shown}, {labels} labels", "hidden state l", shown, series, y_log=log)

    norms = [plot(labels, "hidden_norm", "‖h_l‖", log=True) for labels in both]
    cosines = [plot(labels, "cos", "cos(a_l, g_l)", log=False) for labels in both]
    sizes = {labels: _top_norm(both[labels]["DFA"]) for labels in both}
    known = [f"{size:.1e} with {labels} labels" for labels, size in sizes.items() if size is not None]
    title = "Every layer, with true and with random labels"
    if len(known) == len(sizes):
        title = tidy(f"‖h_L‖ under DFA: {listed(known)}")
    return Figure("layers", title, (*in_same_range(norms), *in_same_range(cosines)), words)


STUDY = RandomLabels()
