"""The first epochs, measured in full: is DFA's deep alignment near zero before its reference collapses?

Papers: P1 table 2 and section 4
Claim: at epoch 1 the deep cosine of DFA is already near zero and layer 0 aligned, while the reference is still valid
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.finite_steps import Functional, functional_papers
from walkback.judge.number import Number, first_bad
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import BAND, in_same_range, series_of, short_power
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
EARLY_METHODS = (METHODS["DFA"], *RAW)
T = DiagnosticThresholds()
SECOND_LAYER = 2
"""The layer whose reference gradient the papers quote."""


@dataclass(frozen=True)
class Moment:
    """All seeds of one method after one epoch."""

    cases: tuple[Case, ...]
    epoch: int

    @property
    def is_last(self) -> bool:
        return self.epoch == self.cases[0].resolved.config.epochs

    @cached_property
    def quantities_by_seed(self) -> list[Quantities]:
        """The quantities of each seed, measured during training or at its end."""
        taken = (case.measurements if self.is_last else case.measurements_after(self.epoch) for case in self.cases)
        return [quantities(found, T) for found in taken]

    def cosines(self, layers: slice) -> list[Number]:
        """The cosines of these layers, of all seeds."""
        return [
            layer.credit.cos for q in self.quantities_by_seed for layer in q.layers[layers] if layer.credit is not None
        ]

    def deep(self) -> list[Number]:
        """By seed: the mean over l = 1..L, as published."""
        return [q.aggregates.deep_mean_papers for q in self.quantities_by_seed]

    def first(self) -> list[Number]:
        """By seed: the cosine of layer 0."""
        return self.cosines(slice(0, 1))

    def norms(self, layer: int) -> list[Number]:
        return [q.layers[layer].grad_norm_128 for q in self.quantities_by_seed]

    def is_near_zero(self) -> bool | None:
        """Whether |deep cosine| is below the smallest alignment that counts in every seed; None where seeds differ."""
        return unanimous(abs(number.known) < T.small_alignment if number.ok else None for number in self.deep())

    def is_first_aligned(self) -> bool | None:
        """Whether layer 0 is aligned in every seed: outside its null and above the smallest alignment that counts."""
        return all_true(_is_aligned(q) for q in self.quantities_by_seed)

    def is_valid(self) -> bool:
        """Whether every deep reference of every seed is above the floor and has the same direction in float64."""
        deep = [layer for q in self.quantities_by_seed for layer in q.layers[1:]]
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
        return scale.runs([*EARLY_METHODS, METHODS["BP"]])

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def epochs_to_measure(self, scale: Scale) -> list[tuple[RunConfig, Sequence[int]]]:
        return [(config, EARLY_EPOCHS) for config in scale.runs(EARLY_METHODS)]

    def functional(self, scale: Scale) -> list[RunConfig]:
        return self.runs(scale)

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = {method_label(method): tuple(found) for method, found in results.by_method(self.runs(scale)).items()}
        cases = [case for found in methods.values() for case in found]
        measured_early = {name: found for name, found in methods.items() if name != "BP"}
        last = cases[0].resolved.config.epochs
        moments = {
            name: [Moment(found, epoch) for epoch in (*EARLY_EPOCHS, last)] for name, found in measured_early.items()
        }
        deep = "Deep: mean over l = 1..L, as published; layers: smallest to largest over seeds and l = 1..L. "
        tables = [
            Table(
                "epochs",
                "The first epochs, and the last",
                ("method", "epoch", "deep cosine", "its layers", "layer 0", f"‖g_{SECOND_LAYER}‖ @128", "‖g_L‖ @128",
                 "reference", "accuracy"),
                tuple(_row(name, moment) for name, found in moments.items() for moment in found),
                caption(
                    scale, [c for found in measured_early.values() for c in found],
                    f"{deep}Reference: float64 gives the same direction at every layer (valid), or not; D2 fails "
                    f"under {short_power(T.g_norm_floor)} (papers: {short_power(PAPERS_FLOOR)} @128).",
                ),
            ),
            Table(
                "finite",
                "Perturbation correlation at the end",
                ("method", "deep ρ", "true gradient", "random vector"),
                tuple(_finite_steps_row(name, found) for name, found in methods.items()),
                caption(scale, cases, "Means over l = 1..L, as the deep cosine above."),
            ),
        ]  # fmt: skip
        return make_study_report(
            "early-epochs",
            "The first epochs",
            "Is DFA's deep alignment near zero before its reference collapses?",
            scale,
            cases,
            [*_findings(moments["DFA"]), *_controls(methods)],
            tables=tables,
            figures=[_figure(moments, caption(scale, [c for f in measured_early.values() for c in f], BAND))],
        )


def _row(name: str, moment: Moment) -> tuple[Cell, ...]:
    epoch = f"{moment.epoch} (end)" if moment.is_last else str(moment.epoch)
    statuses = dict.fromkeys(layer.direction.status for q in moment.quantities_by_seed for layer in q.layers)
    return (
        Cell(name),
        Cell(epoch),
        _mean_numbers(moment.deep(), "+.3f"),
        _range_numbers(moment.cosines(slice(1, None)), "+.2f"),
        _mean_numbers(moment.first(), "+.3f"),
        _range_numbers(moment.norms(SECOND_LAYER), ".2g"),
        _range_numbers(moment.norms(-1), ".2g"),
        Cell(", ".join(statuses)),
        mean_cell([_accuracy(case, moment.epoch) for case in moment.cases], ".3f"),
    )


def _mean_numbers(found: Sequence[Number], spec: str) -> Cell:
    bad = [number for number in found if not number.ok]
    return Cell(bad[0].word, None, bad[0].reason) if bad else mean_cell([number.known for number in found], spec)


def _range_numbers(found: Sequence[Number], spec: str) -> Cell:
    bad = [number for number in found if not number.ok]
    return Cell(bad[0].word, None, bad[0].reason) if bad else range_cell([number.known for number in found], spec)


def _accuracy(case: Case, epoch: int) -> float | None:
    return next((float(row["test_acc"]) for row in case.log if row["epoch"] == epoch), None)


def _finite_steps_row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    found = [_finite_steps(case) for case in cases]
    return (
        Cell(name),
        _mean_numbers([steps.rho.mean for steps in found], "+.3f"),
        _mean_numbers([steps.rho_gradient.mean for steps in found], "+.3f"),
        _mean_numbers([steps.rho_random.mean for steps in found], "+.3f"),
    )


def _finite_steps(case: Case) -> Functional:
    """Finite-step results over the layers of the published deep cosine."""
    return functional_papers(case.functional)


def _findings(moments: Sequence[Moment]) -> list[Finding]:
    start, last = moments[0], moments[-1]
    early = [moment for moment in moments if not moment.is_last]
    valid = [moment for moment in early if moment.is_valid()]
    small = T.small_alignment
    shown = ", ".join(f"epoch {m.epoch} {_mean_numbers(m.deep(), '+.3f').text}" for m in moments)
    norms = ", ".join(f"epoch {m.epoch} {_range_numbers(m.norms(-1), '.2g').text}" for m in moments)
    return [
        Finding(
            "near-zero-at-epoch-1",
            f"DFA's deep cosine is near zero (under {small:g} either way) after epoch 1.",
            start.is_near_zero(),
            f"Deep cosine: {shown}.",
        ),
        Finding(
            "near-zero-while-valid",
            "It is near zero while the reference is still valid.",
            unanimous(moment.is_near_zero() for moment in valid),
            f"Reference above the floor and confirmed by float64 after {_epoch_list(valid)}; ‖g_L‖: {norms}.",
        ),
        Finding(
            "near-zero-to-the-end",
            "It stays near zero to the end.",
            all_true(moment.is_near_zero() for moment in moments),
            f"Near zero in every seed after {_epoch_list([m for m in moments if m.is_near_zero()])}.",
        ),
        Finding(
            "layer-0-aligned",
            "Layer 0 is aligned from the first epoch on.",
            all_true(moment.is_first_aligned() for moment in moments),
            f"Epoch 1 {_mean_numbers(start.first(), '+.2f').text}, 2 {_mean_numbers(moments[1].first(), '+.2f').text}, "
            f"end {_mean_numbers(last.first(), '+.2f').text}.",
        ),
    ]


def _controls(methods: dict[str, tuple[Case, ...]]) -> list[Finding]:
    dfa, bp = ([_finite_steps(case) for case in methods[name]] for name in ("DFA", "BP"))
    small = T.small_alignment
    rho = [steps.rho.interval for steps in dfa]
    gradient = [steps.rho_gradient.mean for steps in bp]
    random = [(steps.rho_random.mean, steps.random_std) for steps in bp]
    return [
        Finding(
            "rho-near-zero",
            f"At the end DFA's deep credit does not predict finite steps either (ρ under {small:g} either way).",
            unanimous(is_within(interval, small) for interval in rho),
            f"ρ {_mean_numbers([steps.rho.mean for steps in dfa], '+.3f').text}; intervals over samples, seed by seed.",
        ),
        Finding(
            "finite-step-controls",
            "In a network trained by backprop the true gradient predicts them and a random vector does not.",
            all_true(
                [
                    *(number.known >= 0.99 if number.ok else None for number in gradient),
                    *(abs(m.known) < T.null_z * width.known if m.ok and width.ok else None for m, width in random),
                ]
            ),
            f"Gradient {_mean_numbers(gradient, '+.3f').text}, random vector "
            f"{_mean_numbers([mean for mean, _ in random], '+.3f').text}.",
        ),
    ]


def _epoch_list(moments: Sequence[Moment]) -> str:
    if not moments:
        return "none of these epochs"
    return f"epoch{'s' if len(moments) > 1 else ''} {', '.join(str(moment.epoch) for moment in moments)}"


def _mean_text(numbers: Sequence[Number]) -> str:
    bad = first_bad(numbers)
    return bad.word if bad else f"{fmean(number.known for number in numbers):+.2f}"


def _figure(moments: dict[str, list[Moment]], caption_text: str) -> Figure:
    def series(name: str, what: str) -> Series:
        early = [moment for moment in moments[name] if not moment.is_last]
        found = [{"deep": m.deep, "first": m.first}[what]() if what != "norm" else m.norms(SECOND_LAYER) for m in early]
        kept = [[number.known for number in each] if all(n.ok for n in each) else [] for each in found]
        return series_of(name, [m.epoch for m in early], kept)

    floors = {"D2 floor": T.g_norm_floor, "papers' floor": PAPERS_FLOOR}
    plots = (
        *in_same_range([
            Plot("Deep cosine", "epoch", "mean over l = 1..L", tuple(series(n, "deep") for n in moments)),
            Plot("Cosine at h_0", "epoch", "cos(a_0, g_0)", tuple(series(n, "first") for n in moments)),
        ]),
        Plot(f"‖g_{SECOND_LAYER}‖", "epoch", f"‖g_{SECOND_LAYER}‖ @128", tuple(series(n, "norm") for n in moments),
             y_log=True, levels=floors),
    )  # fmt: skip
    *_, after, _ = moments["DFA"]
    deep, first = (_mean_text(numbers) for numbers in (after.deep(), after.first()))
    title = f"DFA after epoch {after.epoch}: cosine {first} at h_0, {deep} at deeper states"
    return Figure("early", title, plots, caption_text, columns=3)


STUDY = EarlyEpochs()
