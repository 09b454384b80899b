"""The floor: is a reference gradient below 1e-7 noise, or only too small for cosine functions that clamp?

Papers: P1 section 3 and P2 section 3.1 assume it is noise; measuring it is ours
Claim: below the floor float64 mostly confirms the direction; cosines are distorted there by the clamp at 1e-8
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from walkback.core.configuration import RunConfig
from walkback.core.measurements import GROUP, Array
from walkback.judge.layers import Layer, LayerCredit
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import EMPTY_CELL, Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import AUDITED_METHODS, Scale
from walkback_papers.studies.cross_architecture import by_name, runs_at
from walkback_papers.study import Study
from walkback_papers.tables import caption, make_study_report, numbers_cell, range_cell

_T = DiagnosticThresholds()
_FLOOR, CLAMP, VALID, _SHARE = _T.g_norm_floor, _T.cosine_eps, _T.direction_valid_cos, _T.direction_valid_share
_STATUSES = ("valid", "degraded", "noise", "missing")
SAME_COSINE = 0.01
"""Cosines that differ by less count as equal."""
_LAYERS = (
    "case",
    "layers",
    "under the floor",
    "valid",
    "degraded",
    "noise",
    "unchecked",
    "above: valid",
    "above: other",
    "clamp-distorted",
    "samples without gradient",
)
BELOW = ("case, layer", "‖g_l‖ @128", "direction", "median cos(g, g64)", "under the clamp", "cosine", "clamped cosine")
DECADES = ("‖g_l[i]‖ @128", "samples", "direction kept", "median cos(g, g64)", "clamped / true cosine")


_MANY_KEPT, _MOST_NAMED = 0.9, 3
"""Cases whose share is lower above the clamp are named in the figure, at most so many."""
_OTHER_NETWORKS = {
    "wide": "wide",
    "no_norm": "no norm",
    "vit": "ViT",
    "student": "StudentNet",
    "cnn": "CNN",
    "cifar100": "100 classes",
}
"""Labels of the papers' other networks; on each, BP, FA and DFA are measured."""


class Floor(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [*_audit(scale), *(config for place in _OTHER_NETWORKS for config in runs_at(place, scale))]

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found = by_name(results, _audit(scale))
        for place, label in _OTHER_NETWORKS.items():
            by_method = by_name(results, runs_at(place, scale))
            found |= {f"{name}, {label}": cases for name, cases in by_method.items()}
        cases = [case for each in found.values() for case in each]
        note = (
            f"Floor {_FLOOR:g}, clamp {CLAMP:g}, both @{GROUP}; ViT and CNN: {scale.epochs['vit']} epochs. Without "
            "gradient: exactly zero in float32, smallest to largest seed; they have no direction and are not counted."
        )
        table_caption = caption(scale, cases, note)
        samples = _samples(cases)
        low = tuple(_low_row(name, index, each) for name, index, each in _low_layers(found))
        tables = [
            Table(
                "layers", "Layers by size and direction", _LAYERS, tuple(_row(*x) for x in found.items()), table_caption
            )
        ]
        if low:
            title = "Layers under the floor, or distorted by the clamp, in at least one seed"
            tables.append(Table("below", title, BELOW, low, table_caption))
        title = "Single samples at single layers, by the size of their gradient"
        tables.append(Table("decades", title, DECADES, tuple(_decade_rows(samples)), table_caption, _NOTES))
        return make_study_report(
            "floor",
            "The floor, measured",
            "Is a reference gradient below 1e-7 noise, or only too small for cosine functions that clamp?",
            scale,
            cases,
            _findings(found, samples),
            tables=tables,
            figures=[_figure(found, samples, table_caption)],
        )


_NOTES = (
    "Direction kept: share with cos(g, g64) of 0.995 or more. Clamped / true: slope through zero of the clamped cosine "
    "on the true one; 1 where the clamp does nothing. A credit under the clamp lowers it too.",
)


@dataclass(frozen=True)
class Samples:
    """Flat arrays with one entry per sample and layer; entries without a gradient are left out."""

    grad: Array
    """Norm @128."""
    kept: Array
    """cos(g, g64)."""
    credit: Array
    """Norm @128."""
    cos: Array
    """cos(credit, gradient)."""
    clamped: Array

    def where(self, chosen: np.typing.NDArray[np.bool_]) -> Samples:
        return Samples(
            self.grad[chosen], self.kept[chosen], self.credit[chosen], self.cos[chosen], self.clamped[chosen]
        )

    def between(self, low: float, high: float) -> Samples:
        return self.where((self.grad >= low) & (self.grad < high))

    @property
    def share_kept(self) -> float | None:
        """Share with the same direction in float64."""
        return float((self.kept >= VALID).mean()) if self.kept.size else None

    @property
    def slope(self) -> float | None:
        """Slope of the clamped cosine on the true one, through zero."""
        square = float((self.cos**2).sum())
        return float((self.clamped * self.cos).sum()) / square if square > 0 else None


def _audit(scale: Scale) -> list[RunConfig]:
    return scale.runs(AUDITED_METHODS)


def _samples(cases: Sequence[Case]) -> Samples:
    columns: list[list[Array]] = [[], [], [], [], []]
    for case in cases:
        arrays = case.measurements.arrays
        names = ("grad_norm", "grad_cos64", "credit_norm", "credit_cos", "credit_cos_clamped")
        if all(name in arrays for name in names):
            for column, name in zip(columns, names, strict=True):
                column.append(arrays[name].ravel())
    grad, kept, credit, cos, clamped = (np.concatenate(column) if column else np.zeros(0) for column in columns)
    found = Samples(grad / GROUP, kept, credit / GROUP, cos, clamped)
    usable = np.isfinite(found.grad) & (found.grad > 0) & np.isfinite(found.kept)
    return found.where(usable & np.isfinite(found.cos) & np.isfinite(found.clamped))


def _layers(cases: Sequence[Case]) -> Iterator[Layer]:
    for case in cases:
        yield from case.report.quantities.layers


def is_under(layer: Layer) -> bool:
    """Whether the layer's reference gradient is under the floor."""
    return layer.grad_norm_128.ok and layer.grad_norm_128.known < _FLOOR


def _row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    layers = list(_layers(cases))
    below: list[str] = [layer.direction.status for layer in layers if is_under(layer)]
    above: list[str] = [layer.direction.status for layer in layers if not is_under(layer)]
    distorted = sum(layer.clamp.status == "distorted" for layer in layers)
    counts = [len(layers), len(below), *(below.count(status) for status in _STATUSES)]
    counts += [above.count("valid"), len(above) - above.count("valid"), distorted]
    none = range_cell([_zero_share(case) for case in cases], ".0%")
    return (Cell(name), *(Cell(str(count), count) for count in counts), none)


def _zero_share(case: Case) -> float:
    """Share of samples and layers whose gradient is exactly zero because the softmax is saturated."""
    return float((case.measurements.arrays["grad_norm"] == 0).mean())


def _low_layers(found: Mapping[str, Sequence[Case]]) -> Iterator[tuple[str, int, Sequence[Case]]]:
    for name, cases in found.items():
        for index in range(len(cases[0].report.quantities.layers)):
            each = [case.report.quantities.layers[index] for case in cases]
            if any(is_under(layer) or layer.clamp.status == "distorted" for layer in each):
                yield name, index, cases


def _low_row(name: str, index: int, cases: Sequence[Case]) -> tuple[Cell, ...]:
    layers = [case.report.quantities.layers[index] for case in cases]
    cells = [Cell("NOT MEASURED", None, "no credit was measured")] * 2
    if all(layer.credit is not None for layer in layers):
        cells = [
            numbers_cell(cases, lambda case: _credit(case, index).cos, "+.3f"),
            # The column's head says that it is clamped; the reason would be repeated below the table for every cell.
            replace(numbers_cell(cases, lambda case: _credit(case, index).clamped, "+.3f"), reason=""),
        ]
    return (
        Cell(f"{name}, h_{index}"),
        range_cell([layer.grad_norm_128.value for layer in layers]),
        Cell(" or ".join(dict.fromkeys(layer.direction.status for layer in layers))),
        range_cell([layer.direction.median for layer in layers], ".6f"),
        range_cell([layer.clamp.share for layer in layers], ".0%"),
        *cells,
    )


def _credit(case: Case, index: int) -> LayerCredit:
    found = case.report.quantities.layers[index].credit
    assert found is not None
    return found


def decades(samples: Samples) -> Iterator[tuple[float, Samples]]:
    """The samples of each power of ten that has any, with the lower end of the decade."""
    if samples.grad.size == 0:
        return
    first, last = (int(np.floor(np.log10(end))) for end in (samples.grad.min(), samples.grad.max()))
    for power in range(first, last + 1):
        chosen = samples.between(10.0**power, 10.0 ** (power + 1))
        if chosen.grad.size:
            yield 10.0**power, chosen


def _decade_rows(samples: Samples) -> Iterator[tuple[Cell, ...]]:
    for low, chosen in decades(samples):
        middle = float(np.median(chosen.kept))
        slope = chosen.slope
        yield (
            Cell(f"{low:.0e} to {10 * low:.0e}"),
            Cell(f"{chosen.grad.size:,}", chosen.grad.size),
            Cell(f"{chosen.share_kept:.1%}", chosen.share_kept),
            Cell(f"{middle:.6f}", middle),
            Cell(EMPTY_CELL) if slope is None else Cell(f"{slope:.3f}", slope),
        )


def _findings(found: Mapping[str, Sequence[Case]], samples: Samples) -> list[Finding]:
    named = [(f"{name} h_{layer.index}", layer) for name, cases in found.items() for layer in _layers(cases)]
    below = [(name, layer) for name, layer in named if is_under(layer)]
    above = [(name, layer) for name, layer in named if not is_under(layer)]
    noise = sum(layer.direction.status == "noise" for _, layer in below)
    valid = [(name, layer) for name, layer in below if layer.direction.status == "valid"]
    only_clamp = [(name, layer) for name, layer in valid if layer.clamp.status == "distorted"]
    bad = Counter(name.rpartition(" ")[0] for name, layer in above if layer.direction.status != "valid")
    distorted = [(name, layer) for name, layer in above if layer.clamp.status == "distorted"]
    return [
        Finding(
            "below-floor-is-noise",
            "A layer whose gradient is under the floor holds noise.",
            noise == len(below) if below else None,
            f"Of {len(below)} layers under it (all seeds) {noise} are noise and {len(valid)} are confirmed by float64.",
        ),
        Finding(
            "clamp-distorts-below-floor",
            "Some cosines called uninterpretable are only distorted by the clamp: float64 confirms the direction.",
            bool(only_clamp) if below else None,
            f"{len(only_clamp)} of {len(below)} layers under the floor{_example(only_clamp)}.",
        ),
        Finding(
            "above-floor-is-valid",
            "Above the floor every layer's direction is valid.",
            not bad if above else None,
            f"{len(above)} layers above it; not valid: "
            + ("; ".join(f"{count} of {name}" for name, count in bad.items()) or "none")
            + ".",
        ),
        Finding(
            "clamp-distorts-above-floor",
            "Above the floor a plain cosine can still be wrong: a credit under the clamp distorts it too.",
            bool(distorted) if above else None,
            f"{len(distorted)} of {len(above)} layers above the floor are clamp-distorted{_example(distorted)}.",
        ),
        _single_samples(samples.between(0, _FLOOR)),
        _above_clamp(samples.between(CLAMP, _FLOOR)),
    ]


def _example(layers: Sequence[tuple[str, Layer]]) -> str:
    """The layer whose cosine the clamp changes most, as text."""
    known = [
        (name, layer.credit.cos.known, layer.credit.clamped.known)
        for name, layer in layers
        if layer.credit is not None and layer.credit.cos.ok and layer.credit.clamped.ok
    ]
    if not known:
        return ""
    name, true, clamped = max(known, key=lambda each: abs(each[1] - each[2]))
    return f"; most at {name}: {true:+.3f}, clamped {clamped:+.3f}"


def _single_samples(low: Samples) -> Finding:
    """Whether single samples under the floor keep their direction; a network above it has such samples too."""
    share = low.share_kept
    return Finding(
        "samples-keep-direction",
        f"Of single samples' gradients under the floor, {_SHARE:.0%} keep their direction.",
        None if share is None else share >= _SHARE,
        f"{low.grad.size:,} of them" + ("." if share is None else f"; {share:.1%} keep it."),
    )


def _above_clamp(low: Samples) -> Finding:
    """Whether a plain cosine is right between the clamp and the floor, which is ten times the clamp."""
    real = low.where((low.kept >= VALID) & (low.credit >= CLAMP))
    share = float((np.abs(real.clamped - real.cos) < SAME_COSINE).mean()) if real.cos.size else None
    return Finding(
        "cosine-right-above-clamp",
        f"Between the clamp and the floor a plain cosine is right (within {SAME_COSINE:g} for {_SHARE:.0%} of "
        "samples).",
        None if share is None else share >= _SHARE,
        f"{real.cos.size:,} samples with a valid direction and a credit above the clamp"
        + ("." if share is None else f"; right for {share:.1%}."),
    )


def _figure(found: Mapping[str, Sequence[Case]], samples: Samples, caption_text: str) -> Figure:
    """All samples together, each case as a thin line behind them; cases that lose their direction above the clamp are
    named."""
    by_case = {name: list(decades(_samples(cases))) for name, cases in found.items()}
    losing = sorted(by_case, key=lambda name: _least_kept(by_case[name]))[:_MOST_NAMED]
    named = [name for name in losing if _least_kept(by_case[name]) < _MANY_KEPT]

    def curve(
        label: str, parts: Sequence[tuple[float, Samples]], get: str, style: str = "", quiet: bool = False
    ) -> Series:
        x, y = [low * 10**0.5 for low, _ in parts], [getattr(chosen, get) for _, chosen in parts]
        return Series(label, x, y, style, mark="line" if quiet else "both", quiet=quiet)

    def plot(title: str, y_label: str, get: str, shown: Sequence[str]) -> Plot:
        behind = [curve(name, each, get, quiet=True) for name, each in by_case.items() if name not in shown]
        front = [curve(name, by_case[name], get) for name in shown]
        series = (*behind, *front, curve("all samples", list(decades(samples)), get, "BP"))
        marks = ((CLAMP, "clamp"), (_FLOOR, "floor"))
        return Plot(title, "‖g_l[i]‖ @128, by decade", y_label, series, x_log=True, events=marks)

    plots = (
        plot("Is the direction confirmed by float64?", "share confirmed", "share_kept", named),
        plot("Is the cosine distorted?", "clamped / true cosine", "slope", ()),
    )
    share = samples.between(0, _FLOOR).share_kept
    title = "Direction and clamp by the size of a sample's gradient"
    if share is not None:
        title = f"Under the floor float64 confirms the direction of {share:.1%} of single samples' gradients"
    words = f"Thin lines: each of {len(by_case)} cases. {caption_text}"
    return Figure("decades", title, plots, words, zoom=1.3)


def _least_kept(parts: Sequence[tuple[float, Samples]]) -> float:
    """The smallest share with the same direction in a decade above the clamp."""
    return min(
        (chosen.share_kept for low, chosen in parts if low >= CLAMP and chosen.share_kept is not None), default=1
    )


STUDY = Floor()
