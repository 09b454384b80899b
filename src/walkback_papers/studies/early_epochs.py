"""The first epochs, measured closely: is DFA's deep alignment gone before its reference collapses?

Papers: P1 table 2 and section 4
Claim: at epoch 1 the deep cosine of DFA is already near zero and layer 0 aligned, while the reference is still valid
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from walkback.core.configuration import RunConfig
from walkback.judge.finite_steps import Functional, functional_deep
from walkback.judge.number import Number
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import BAND, by_hand, series_of
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    PAPERS_FLOOR,
    all_true,
    caption,
    is_within,
    make_study_report,
    mean_cell,
    method_label,
    range_cell,
    unanimous,
)

EARLY_EPOCHS = (1, 2, 3, 4, 5)
LISTED_EPOCHS = (METHODS["DFA"], *RAW)
T = DiagnosticThresholds()
SECOND = 2
"""The layer whose reference the papers quote."""


@dataclass(frozen=True)
class Moment:
    """All seeds of one method after one epoch."""

    cases: tuple[Case, ...]
    epoch: int

    @property
    def is_last(self) -> bool:
        return self.epoch == self.cases[0].resolved.config.epochs

    @cached_property
    def seen(self) -> list[Quantities]:
        """What was measured of each seed: on the way, or at the end."""
        taken = (case.measurements if self.is_last else case.close(self.epoch) for case in self.cases)
        return [quantities(found, T) for found in taken]

    def cosines(self, layers: slice) -> list[Number]:
        """The cosines of some layers, of all seeds."""
        return [layer.credit.cos for q in self.seen for layer in q.layers[layers] if layer.credit is not None]

    def deep(self) -> list[Number]:
        """By seed: the mean over l = 1..L, as published."""
        return [q.aggregates.deep_mean_papers for q in self.seen]

    def first(self) -> list[Number]:
        """By seed: layer 0."""
        return self.cosines(slice(0, 1))

    def norms(self, layer: int) -> list[Number]:
        return [q.layers[layer].grad_norm_128 for q in self.seen]

    def is_near_zero(self) -> bool | None:
        """Whether every seed's deep cosine is under the smallest that counts, either way; None where seeds differ."""
        return unanimous(abs(number.known) < T.small_alignment if number.ok else None for number in self.deep())

    def is_first_aligned(self) -> bool | None:
        """Whether layer 0 is aligned: outside its null and above the smallest cosine that counts."""
        return all_true(_is_aligned(q) for q in self.seen)

    def is_valid(self) -> bool:
        """Whether in every seed every deep reference is above the floor and float64 gives the same direction."""
        deep = [layer for q in self.seen for layer in q.layers[1:]]
        return all(
            layer.direction.status == "valid" and layer.grad_norm_128.ok and layer.grad_norm_128.known >= T.g_norm_floor
            for layer in deep
        )


def _is_aligned(q: Quantities) -> bool | None:
    credit = q.layers[0].credit
    if credit is None or not credit.z.ok:
        return None
    return credit.z.known >= T.null_z and credit.cos.known >= T.small_alignment


class EarlyEpochs(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs([*LISTED_EPOCHS, METHODS["BP"]])

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def epochs_to_measure(self, scale: Scale) -> list[tuple[RunConfig, Sequence[int]]]:
        return [(config, EARLY_EPOCHS) for config in scale.runs(LISTED_EPOCHS)]

    def functional(self, scale: Scale) -> list[RunConfig]:
        return self.runs(scale)

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = {method_label(method): tuple(found) for method, found in results.by_method(self.runs(scale)).items()}
        cases = [case for found in methods.values() for case in found]
        watched = {name: found for name, found in methods.items() if name != "BP"}
        last = cases[0].resolved.config.epochs
        moments = {name: [Moment(found, epoch) for epoch in (*EARLY_EPOCHS, last)] for name, found in watched.items()}
        deep = "Deep: mean over l = 1..L, as published; layers: smallest to largest over seeds and l = 1..L. "
        tables = [
            Table(
                "epochs",
                "The first epochs, and the last",
                ("method", "epoch", "deep cosine", "its layers", "layer 0", f"‖g_{SECOND}‖ @128", "‖g_L‖ @128",
                 "reference", "accuracy"),
                tuple(_row(name, moment) for name, found in moments.items() for moment in found),
                caption(
                    scale, [c for found in watched.values() for c in found],
                    f"{deep}Reference: float64 gives the same direction at every layer (valid), or not; D2 is raised "
                    f"under {by_hand(T.g_norm_floor)} (papers: {by_hand(PAPERS_FLOOR)} @128).",
                ),
            ),
            Table(
                "finite",
                "Perturbation correlation at the end",
                ("method", "deep ρ", "true gradient", "random vector"),
                tuple(_finite(name, found) for name, found in methods.items()),
                caption(scale, cases, "Deep layers: those whose credit trains a block, without exact ones (BP: none)."),
            ),
        ]  # fmt: skip
        return make_study_report(
            "early-epochs",
            "The first epochs",
            "Is DFA's deep alignment gone before its reference collapses?",
            scale,
            cases,
            [*_findings(moments["DFA"]), *_controls(methods)],
            tables=tables,
            figures=[_figure(moments, caption(scale, [c for f in watched.values() for c in f], BAND))],
        )


def _row(name: str, moment: Moment) -> tuple[Cell, ...]:
    epoch = f"{moment.epoch} (end)" if moment.is_last else str(moment.epoch)
    statuses = dict.fromkeys(layer.direction.status for q in moment.seen for layer in q.layers)
    return (
        Cell(name),
        Cell(epoch),
        _over(moment.deep(), "+.3f"),
        _from_to(moment.cosines(slice(1, None)), "+.2f"),
        _over(moment.first(), "+.3f"),
        _from_to(moment.norms(SECOND), ".2g"),
        _from_to(moment.norms(-1), ".2g"),
        Cell(", ".join(statuses)),
        mean_cell([_accuracy(case, moment.epoch) for case in moment.cases], ".3f"),
    )


def _over(found: Sequence[Number], spec: str) -> Cell:
    bad = [number for number in found if not number.ok]
    return Cell(bad[0].word, None, bad[0].reason) if bad else mean_cell([number.known for number in found], spec)


def _from_to(found: Sequence[Number], spec: str) -> Cell:
    bad = [number for number in found if not number.ok]
    return Cell(bad[0].word, None, bad[0].reason) if bad else range_cell([number.known for number in found], spec)


def _accuracy(case: Case, epoch: int) -> float | None:
    return next((float(row["test_acc"]) for row in case.log if row["epoch"] == epoch), None)


def _finite(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    found = [_steps(case) for case in cases]
    return (
        Cell(name),
        _over([steps.rho.mean for steps in found], "+.3f"),
        _over([steps.rho_gradient.mean for steps in found], "+.3f"),
        _over([steps.rho_random.mean for steps in found], "+.3f"),
    )


def _steps(case: Case) -> Functional:
    """Finite steps over the deep layers; of backprop, whose layers are all exact, over h_1..h_L for its controls."""
    taken = case.functional
    if case.method != METHODS["BP"]:
        return functional_deep(taken)
    unlabelled = {**taken.facts, "labels": ["none"] * (taken.depth + 1)}
    return functional_deep(type(taken)(taken.arrays, unlabelled))


def _findings(moments: Sequence[Moment]) -> list[Finding]:
    start, last = moments[0], moments[-1]
    early = [moment for moment in moments if not moment.is_last]
    before = [moment for moment in early if moment.is_valid()]
    small = T.small_alignment
    shown = ", ".join(f"epoch {m.epoch} {_over(m.deep(), '+.3f').text}" for m in moments)
    norms = ", ".join(f"epoch {m.epoch} {_from_to(m.norms(-1), '.2g').text}" for m in moments)
    return [
        Finding(
            f"DFA's deep cosine is near zero (under {small:g} either way) after epoch 1.",
            start.is_near_zero(),
            f"Deep cosine: {shown}.",
        ),
        Finding(
            "It is near zero while the reference is still valid.",
            unanimous(moment.is_near_zero() for moment in before),
            f"Reference above the floor and real in float64 after {_named(before)}; ‖g_L‖: {norms}.",
        ),
        Finding(
            "It stays near zero to the end.",
            all_true(moment.is_near_zero() for moment in moments),
            f"Near zero in every seed after {_named([m for m in moments if m.is_near_zero()])}.",
        ),
        Finding(
            "Layer 0 is aligned from the first epoch on.",
            all_true(moment.is_first_aligned() for moment in moments),
            f"Epoch 1 {_over(start.first(), '+.2f').text}, 2 {_over(moments[1].first(), '+.2f').text}, "
            f"end {_over(last.first(), '+.2f').text}.",
        ),
    ]


def _controls(methods: dict[str, tuple[Case, ...]]) -> list[Finding]:
    dfa, bp = ([_steps(case) for case in methods[name]] for name in ("DFA", "BP"))
    small = T.small_alignment
    rho = [steps.rho.interval for steps in dfa]
    good = [steps.rho_gradient.mean for steps in bp]
    idle = [(steps.rho_random.mean, steps.random_std) for steps in bp]
    return [
        Finding(
            f"At the end DFA's deep credit does not predict finite steps either (ρ under {small:g} either way).",
            unanimous(is_within(interval, small) for interval in rho),
            f"ρ {_over([steps.rho.mean for steps in dfa], '+.3f').text}; intervals over samples, seed by seed.",
        ),
        Finding(
            "In a network trained by backprop the true gradient predicts them and a random vector does not.",
            all_true(
                [
                    *(number.known >= 0.99 if number.ok else None for number in good),
                    *(abs(m.known) < T.null_z * width.known if m.ok and width.ok else None for m, width in idle),
                ]
            ),
            f"Gradient {_over(good, '+.3f').text}, random vector {_over([mean for mean, _ in idle], '+.3f').text}.",
        ),
    ]


def _named(moments: Sequence[Moment]) -> str:
    if not moments:
        return "none of these epochs"
    return f"epoch{'s' if len(moments) > 1 else ''} {', '.join(str(moment.epoch) for moment in moments)}"


def _figure(moments: dict[str, list[Moment]], words: str) -> Figure:
    def series(name: str, what: str) -> Series:
        early = [moment for moment in moments[name] if not moment.is_last]
        found = [{"deep": m.deep, "first": m.first}[what]() if what != "norm" else m.norms(SECOND) for m in early]
        kept = [[number.known for number in each] if all(n.ok for n in each) else [] for each in found]
        return series_of(name, [m.epoch for m in early], kept)

    floors = {"D2": T.g_norm_floor, "papers' D2": PAPERS_FLOOR}
    plots = (
        Plot("Deep cosine", "epoch", "mean over l = 1..L", tuple(series(n, "deep") for n in moments)),
        Plot("Layer 0", "epoch", "cos(a_0, g_0)", tuple(series(n, "first") for n in moments)),
        Plot(f"‖g_{SECOND}‖", "epoch", f"‖g_{SECOND}‖ @128", tuple(series(n, "norm") for n in moments), y_log=True,
             levels=floors),
    )  # fmt: skip
    return Figure("early", "Credit and reference in the first epochs", plots, words, columns=3)


STUDY = EarlyEpochs()
