"""Layer by layer: which layer has each method's alignment, and how large are states, gradients and credit there?

Papers: P2 section 3.1 and figure 3, P1 section 3
Claim: FA's alignment rises towards the head; DFA's is in layer 0 alone; an average over layers hides both
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from walkback.core.configuration import RunConfig
from walkback.judge.aggregates import Aggregates
from walkback.judge.number import Number
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import (
    BAND,
    LayerQuantity,
    in_same_range,
    layer_cells,
    layer_values,
    listed,
    message,
    over_layers,
)
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    caption,
    check_fails,
    kebab,
    make_study_report,
    mean_without_exact,
    method_label,
    numbers_cell,
    unanimous,
)

PER_LAYER_METHODS = (*(METHODS[name] for name in ("FA", "DFA", "State Bridge", "Credit Bridge")), *RAW)
_NORMS: dict[LayerQuantity, str] = {"hidden_norm": "‖h_l‖", "grad_norm_128": "‖g_l‖ @128", "credit_norm": "‖a_l‖"}


class PerLayer(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(PER_LAYER_METHODS)

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = {method_label(method): found for method, found in results.by_method(self.runs(scale)).items()}
        cases = [case for found in methods.values() for case in found]
        layers = tuple(f"l = {index}" for index in range(cases[0].resolved.net.depth + 1))
        exact = "Exact: the credit equals the gradient by construction. κ: the largest share of the positive cosine "
        note = f"{exact}in one layer, over layers above their null and not exact, and the index of that layer."
        tables = [
            Table(
                "cosines",
                "Cosine of credit and gradient",
                ("method", *layers, "deep", "counting exact", "κ"),
                tuple(_cosine_row(name, found) for name, found in methods.items()),
                caption(scale, cases, f"Deep: the states whose credit trains a block, without exact ones. {note}"),
            ),
            Table(
                "norms",
                "Norms",
                ("method", "mean", *layers),
                tuple(_norm_row(name, found, what) for name, found in methods.items() for what in _NORMS),
                caption(scale, cases, "Smallest to largest seed. Credits on the scale of one sample's loss."),
            ),
        ]
        return make_study_report(
            "per-layer",
            "Layer by layer",
            "Which layer has each method's alignment?",
            scale,
            cases,
            _findings(methods),
            tables=tables,
            figures=_figures(methods, caption(scale, cases, BAND)),
        )


def _cosine_row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    cells = layer_cells([case.report.quantities for case in cases], "cos", "+.2f")
    labels = [layer.credit.label if layer.credit else "none" for layer in cases[0].report.quantities.layers]
    marked = [
        Cell(f"{cell.text} {word}", cell.value, cell.reason) if word in ("exact", "fitted") else cell
        for cell, word in zip(cells, labels, strict=True)
    ]
    return (
        Cell(name),
        *marked,
        numbers_cell(cases, lambda case: _aggregates(case).deep_mean, "+.2f"),
        numbers_cell(cases, lambda case: _aggregates(case).deep_mean_papers, "+.2f"),
        _kappa(cases),
    )


def _kappa(cases: Sequence[Case]) -> Cell:
    shares = numbers_cell(cases, lambda case: _aggregates(case).concentration, ".0%")
    if shares.value is None:
        return shares
    where = ", ".join(dict.fromkeys(str(_aggregates(case).concentration_layer) for case in cases))
    return Cell(f"{shares.text} at l = {where}", shares.value, shares.reason)


def _norm_row(name: str, cases: Sequence[Case], what: LayerQuantity) -> tuple[Cell, ...]:
    return (Cell(name), Cell(_NORMS[what]), *layer_cells([case.report.quantities for case in cases], what, ".2g"))


def _findings(methods: dict[str, list[Case]]) -> list[Finding]:
    small = DiagnosticThresholds().small_alignment
    fa, dfa = methods["FA"], methods["DFA"]
    return [
        Finding(
            "fa-rises-by-layer",
            "FA's cosine rises from block to block towards the head.",
            unanimous(_rises(case) for case in fa),
            f"By layer: {_cosines_text(fa)}.",
        ),
        Finding(
            "fa-mean-includes-exact-layer",
            "FA's published mean is raised by the layer where it is exact by construction.",
            unanimous(_is_lifted(case) for case in fa),
            f"Over l = 1..L {_mean_text(fa, _published)}, without that layer {_mean_text(fa, _not_exact)}.",
        ),
        Finding(
            "dfa-aligned-only-in-layer-0",
            f"DFA is aligned in layer 0, and under {small:g} at every deeper one.",
            unanimous(_only_first(case) for case in dfa),
            f"By layer: {_cosines_text(dfa)}.",
        ),
        *(
            Finding(
                f"{kebab(name)}-in-one-layer",
                f"One layer carries {name}'s alignment.",
                check_fails(cases, "concentration"),
                " ".join(f"Seed {case.seed}: {case.report.flags['concentration'].reason}." for case in cases),
            )
            for name, cases in methods.items()
        ),
    ]


def _rises(case: Case) -> bool | None:
    """Whether each layer's cosine is above that of the layer before it, including the exact top layer."""
    cosines = layer_values(case.report.quantities, "cos")
    if not all(number.ok for number in cosines):
        return None
    known = [number.known for number in cosines]
    return all(deeper > before for before, deeper in pairwise(known))


def _is_lifted(case: Case) -> bool | None:
    counted, without = _published(case), _not_exact(case)
    return counted.known > without.known if counted.ok and without.ok else None


def _only_first(case: Case) -> bool | None:
    """Whether layer 0 is outside its null and above `small_alignment`, all others below; None if one is unusable."""
    t = case.report.thresholds
    first, *deeper = case.report.quantities.layers
    assert first.credit is not None
    cosines = [layer.credit.cos for layer in deeper if layer.credit is not None]
    if not first.credit.z.ok or not all(number.ok for number in cosines):
        return None
    is_first = first.credit.z.known >= t.null_z and first.credit.cos.known >= t.small_alignment
    return is_first and all(number.known < t.small_alignment for number in cosines)


def _cosines_text(cases: Sequence[Case]) -> str:
    return ", ".join(cell.text for cell in layer_cells([case.report.quantities for case in cases], "cos", "+.2f"))


def _published(case: Case) -> Number:
    return _aggregates(case).deep_mean_papers


def _not_exact(case: Case) -> Number:
    return mean_without_exact(case.report.quantities)


def _mean_text(cases: Sequence[Case], get: Callable[[Case], Number]) -> str:
    return numbers_cell(cases, get, "+.3f").text


def _aggregates(case: Case) -> Aggregates:
    return case.report.quantities.aggregates


def _figures(methods: dict[str, list[Case]], caption_text: str) -> list[Figure]:
    """A plot for each method: cosines, and norms."""

    def seeds(name: str) -> list[Quantities]:
        return [case.report.quantities for case in methods[name]]

    cosines = [
        Plot(name, "hidden state l", "cos(a_l, g_l)", (over_layers(name, seeds(name), "cos"), _null_band(seeds(name))))
        for name in methods
    ]
    norms = [
        Plot(
            name,
            "hidden state l",
            "mean norm",
            tuple(over_layers(shown, seeds(name), what) for what, shown in _NORMS.items()),
            y_log=True,
            levels={"D2 floor": DiagnosticThresholds().g_norm_floor},
        )
        for name in methods
    ]
    only_first = unanimous(_only_first(case) for case in methods["DFA"])
    aligned = message(only_first, "DFA is aligned at h_0, and at no deeper state", "Alignment of every state")
    collapsed = listed([name for name, cases in methods.items() if check_fails(cases, "D2")])
    return [
        Figure("cosines", aligned, in_same_range(cosines), caption_text, columns=3),
        Figure("norms", f"‖g_L‖ is under its floor in every seed: {collapsed}", tuple(norms), caption_text, columns=3),
    ]


def _null_band(seeds: Sequence[Quantities]) -> Series:
    """The band of cosines expected by chance: three standard deviations of the Haar null, of the first seed."""
    z = DiagnosticThresholds().null_z
    widths = [layer.credit.null_std if layer.credit else None for layer in seeds[0].layers]
    high = [None if width is None else z * width for width in widths]
    low = [None if width is None else -z * width for width in widths]
    return Series("null (3 widths)", range(len(widths)), [0.0] * len(widths), "null", low=low, high=high)


STUDY = PerLayer()
