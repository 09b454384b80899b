"""The floor: is a reference gradient under 1e-7 noise, or only too small for cosine functions that clamp?

Papers: P1 section 3 and P2 section 3.1 assume it is noise; measuring it is ours
Claim: below the floor float64 mostly confirms the direction; what made cosines unreadable there is the clamp at 1e-8
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
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.studies.cross_architecture import by_name, runs_at
from walkback_papers.study import Study
from walkback_papers.tables import caption, make_study_report, numbers_cell, range_cell

_T = DiagnosticThresholds()
_FLOOR, CLAMP, VALID, _SHARE = _T.g_norm_floor, _T.cosine_eps, _T.direction_valid_cos, _T.direction_valid_share
_STATUSES = ("valid", "degraded", "noise", "missing")
CLOSE = 0.01
"""Two cosines that differ by less are the same to a reader."""
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


_ELSEWHERE = {
    "wide": "wide",
    "no_norm": "no norm",
    "vit": "ViT",
    "student": "StudentNet",
    "cnn": "CNN",
    "cifar100": "100 classes",
}
"""Every other network of the papers, with the words for it; BP, FA and DFA are looked at."""


class Floor(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [*_audit(scale), *(config for place in _ELSEWHERE for config in runs_at(place, scale))]

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found = by_name(results, _audit(scale))
        for place, words in _ELSEWHERE.items():
            there = by_name(results, runs_at(place, scale))
            found |= {f"{name}, {words}": cases for name, cases in there.items()}
        cases = [case for each in found.values() for case in each]
        note = (
            f"Floor {_FLOOR:g}, clamp {CLAMP:g}, both @{GROUP}; ViT and CNN: {scale.epochs['vit']} epochs. Without "
            "gradient: exactly zero in float32, smallest to largest seed; they have no direction and are not counted."
        )
        told = caption(scale, cases, note)
        samples = _samples(cases)
        low = tuple(_low_row(name, index, each) for name, index, each in _low(found))
        tables = [
            Table("layers", "Layers by size and direction", _LAYERS, tuple(_row(*x) for x in found.items()), told)
        ]
        if low:
            title = "Layers under the floor, or distorted by the clamp, in at least one seed"
            tables.append(Table("below", title, BELOW, low, told))
        title = "Single samples at single layers, by the size of their gradient"
        tables.append(Table("decades", title, DECADES, tuple(_decade_rows(samples)), told, _NOTES))
        return make_study_report(
            "floor",
            "The floor, measured",
            "Is a reference gradient under 1e-7 noise, or only too small for cosine functions that clamp?",
            scale,
            cases,
            _findings(found, samples),
            tables=tables,
            figures=[_figure(found, told)],
        )


_NOTES = (
    "Direction kept: share with cos(g, g64) of 0.995 or more. Clamped / true: slope through zero of the clamped cosine "
    "on the true one; 1 where the clamp does nothing. A credit under the clamp lowers it too.",
)


@dataclass(frozen=True)
class Samples:
    """Single samples at single layers, flat and beside each other; those without a gradient are left out."""

    grad: Array
    """Norm @128."""
    kept: Array
    """cos(g, g64)."""
    credit: Array
    """Norm @128."""
    cos: Array
    clamped: Array

    def where(self, chosen: np.typing.NDArray[np.bool_]) -> Samples:
        return Samples(
            self.grad[chosen], self.kept[chosen], self.credit[chosen], self.cos[chosen], self.clamped[chosen]
        )

    def between(self, low: float, high: float) -> Samples:
        return self.where((self.grad >= low) & (self.grad < high))

    @property
    def share_kept(self) -> float | None:
        """Of those whose direction was replayed."""
        return float((self.kept >= VALID).mean()) if self.kept.size else None

    @property
    def slope(self) -> float | None:
        """Of the clamped cosine on the true one, through zero."""
        square = float((self.cos**2).sum())
        return float((self.clamped * self.cos).sum()) / square if square > 0 else None


def _audit(scale: Scale) -> list[RunConfig]:
    return scale.runs([*METHODS.values(), *RAW])


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
    return layer.grad_norm_128.ok and layer.grad_norm_128.known < _FLOOR


def _row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    layers = list(_layers(cases))
    under: list[str] = [layer.direction.status for layer in layers if is_under(layer)]
    over: list[str] = [layer.direction.status for layer in layers if not is_under(layer)]
    distorted = sum(layer.clamp.status == "distorted" for layer in layers)
    counts = [len(layers), len(under), *(under.count(status) for status in _STATUSES)]
    counts += [over.count("valid"), len(over) - over.count("valid"), distorted]
    none = range_cell([_zero_share(case) for case in cases], ".0%")
    return (Cell(name), *(Cell(str(count), count) for count in counts), none)


def _zero_share(case: Case) -> float:
    """Of samples at layers, those whose gradient is exactly zero: the softmax has nothing left to say of them."""
    return float((case.measurements.arrays["grad_norm"] == 0).mean())


def _low(found: Mapping[str, Sequence[Case]]) -> Iterator[tuple[str, int, Sequence[Case]]]:
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
            # Its column says what it is; the judge's caveat would be repeated below for every cell.
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
    """The samples of each power of ten that has any, by its lower end."""
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
    under = [(name, layer) for name, layer in named if is_under(layer)]
    over = [(name, layer) for name, layer in named if not is_under(layer)]
    noise = sum(layer.direction.status == "noise" for _, layer in under)
    valid = [(name, layer) for name, layer in under if layer.direction.status == "valid"]
    only_clamp = [(name, layer) for name, layer in valid if layer.clamp.status == "distorted"]
    bad = Counter(name.rpartition(" ")[0] for name, layer in over if layer.direction.status != "valid")
    unseen = [(name, layer) for name, layer in over if layer.clamp.status == "distorted"]
    return [
        Finding(
            "A layer whose gradient is under the floor holds noise.",
            noise == len(under) if under else None,
            f"Of {len(under)} layers under it (all seeds) {noise} are noise and {len(valid)} are confirmed by float64.",
        ),
        Finding(
            "Some cosines called uninterpretable are only distorted by the clamp: float64 confirms the direction.",
            bool(only_clamp) if under else None,
            f"{len(only_clamp)} of {len(under)} layers under the floor{_example(only_clamp)}.",
        ),
        Finding(
            "Above the floor every layer's direction is valid.",
            not bad if over else None,
            f"{len(over)} layers above it; not valid: "
            + ("; ".join(f"{count} of {name}" for name, count in bad.items()) or "none")
            + ".",
        ),
        Finding(
            "A reference above the floor does not keep a plain cosine right: a credit under the clamp distorts it too.",
            bool(unseen) if over else None,
            f"{len(unseen)} of {len(over)} layers above the floor are clamp-distorted{_example(unseen)}.",
        ),
        _single(samples.between(0, _FLOOR)),
        _between(samples.between(CLAMP, _FLOOR)),
    ]


def _example(layers: Sequence[tuple[str, Layer]]) -> str:
    """The layer whose cosine the clamp changes most."""
    known = [
        (name, layer.credit.cos.known, layer.credit.clamped.known)
        for name, layer in layers
        if layer.credit is not None and layer.credit.cos.ok and layer.credit.clamped.ok
    ]
    if not known:
        return ""
    name, true, clamped = max(known, key=lambda each: abs(each[1] - each[2]))
    return f"; most at {name}: {true:+.3f}, clamped {clamped:+.3f}"


def _single(low: Samples) -> Finding:
    """Sample by sample: a network above the floor has single samples under it."""
    share = low.share_kept
    return Finding(
        f"Of single samples' gradients under the floor, {_SHARE:.0%} keep their direction.",
        None if share is None else share >= _SHARE,
        f"{low.grad.size:,} of them" + ("." if share is None else f"; {share:.1%} keep it."),
    )


def _between(low: Samples) -> Finding:
    """The warning margin: ten times the clamp."""
    real = low.where((low.kept >= VALID) & (low.credit >= CLAMP))
    share = float((np.abs(real.clamped - real.cos) < CLOSE).mean()) if real.cos.size else None
    return Finding(
        f"Between the clamp and the floor a plain cosine is right (within {CLOSE:g} for {_SHARE:.0%} of samples).",
        None if share is None else share >= _SHARE,
        f"{real.cos.size:,} samples with a valid direction and a credit above the clamp"
        + ("." if share is None else f"; right for {share:.1%}."),
    )


def _figure(found: Mapping[str, Sequence[Case]], words: str) -> Figure:
    by_case = {name: list(decades(_samples(cases))) for name, cases in found.items()}

    def plot(title: str, y_label: str, get: str) -> Plot:
        series = tuple(
            Series(name, [low * 10**0.5 for low, _ in each], [getattr(chosen, get) for _, chosen in each], mark="both")
            for name, each in by_case.items()
        )
        marks = ((CLAMP, "clamp"), (_FLOOR, "floor"))
        return Plot(title, "‖g_l[i]‖ @128, by decade", y_label, series, x_log=True, events=marks)

    plots = (
        plot("Is the direction real?", "share that keeps it", "share_kept"),
        plot("Is the cosine distorted?", "clamped / true cosine", "slope"),
    )
    return Figure("decades", "Direction and clamp by the size of a sample's gradient", plots, words)


STUDY = Floor()
