"""Plots by layer: the cosines and the reference gradient norms of each method, on the same axes for every method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, stdev

from markupsafe import Markup

from walkback.report.audit_page.member import Member, Multiple, mark_title, mean_of, number_ranges
from walkback.report.cells import EMPTY_CELL, Cell, size
from walkback.report.sections import LayerView, layer_view
from walkback.report.svg import AxisScale, Point, SvgAxes

_COSINE, NORM = "cosine", "|g_l| @128"
LAYER_QUANTITIES: dict[str, Callable[[LayerView], Cell]] = {
    _COSINE: lambda view: view.credit,
    NORM: lambda view: view.grad,
}
LABELS = {
    "exact": "exact by construction",
    "asymptotic": "asymptotically exact",
    "fitted": "fitted",
}
_MANY = 12
"""With more layers than this the dots are smaller."""


def layer_multiples(members: Sequence[Member]) -> list[Multiple]:
    """Two plots for each method: cosines and gradient norms."""
    views = [_seeds_of(member) for member in members]
    every = [view for seeds in views for seed in seeds for view in seed]
    bands = [view.band for view in every if view.band is not None]
    scales = {
        _COSINE: AxisScale.around([*_known(every, _COSINE), *bands, *(-band for band in bands)], -0.1, 0.2),
        NORM: AxisScale.decades([*_known(every, NORM), *(floor_of(member) for member in members)]),
    }
    last = max(view.index for view in every)
    return [_multiple(member, seeds, scales, last) for member, seeds in zip(members, views, strict=True)]


def _seeds_of(member: Member) -> list[list[LayerView]]:
    """The layers of each seed."""
    return [[layer_view(raw, card["thresholds"]["null_z"]) for raw in card["layers"]] for card in member.cards]


def floor_of(member: Member) -> float:
    """D2's floor."""
    return float(member.cards[0]["thresholds"]["g_norm_floor"])


def layer_numbers(members: Sequence[Member], what: str) -> list[tuple[str, list[Cell]]]:
    """The plotted quantity `what` as a table: a row for each method, a cell for each layer."""
    views = [_seeds_of(member) for member in members]
    width = max(len(seeds[0]) for seeds in views)
    rows = []
    for member, seeds in zip(members, views, strict=True):
        cells = [_over_seeds([LAYER_QUANTITIES[what](seed[at]) for seed in seeds], what) for at in range(len(seeds[0]))]
        rows.append((member.name, cells + [Cell(EMPTY_CELL)] * (width - len(cells))))
    return rows


def _over_seeds(cells: Sequence[Cell], what: str) -> Cell:
    """Cosines as mean ± standard deviation, norms from smallest to largest; a word where a seed has no valid value."""
    bad = [cell for cell in cells if cell.value is None]
    if bad:
        share = "" if len(bad) == len(cells) else f" in {len(bad)} of {len(cells)}"
        return Cell(f"{bad[0].text}{share}", None, bad[0].reason)
    values = [cell.value for cell in cells if cell.value is not None]
    if len(values) == 1:
        return cells[0]
    if what == _COSINE:
        return Cell(f"{fmean(values):+z.3f} ± {stdev(values):.3f}", fmean(values))
    ends = dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values)))
    return Cell(" to ".join(ends), min(values))


def _multiple(member: Member, seeds: list[list[LayerView]], scales: dict[str, AxisScale], last: int) -> Multiple:
    panels = []
    floor = floor_of(member)
    for what, title in ((_COSINE, "credit cosine"), (NORM, "‖g_l‖ @128, log")):
        axes = SvgAxes(title, "layer", 0, last, scales[what])
        curves: list[list[Point]] = [
            [(view.index, LAYER_QUANTITIES[what](view).value) for view in seed] for seed in seeds
        ]
        means = mean_of(curves, axes.y.log)
        under = (
            _band(axes, seeds) if what == _COSINE else axes.threshold(floor, f"floor {size(floor)}", [*curves, means])
        )
        parts = [*under, *_lines(axes, curves, means), *_dots(axes, member, seeds, means, what)]
        panels.append(axes.drawn(parts, f"{title} of {member.name} by layer"))
    return Multiple(member, tuple(panels), (*_labels(seeds), *_reasons(member, seeds)))


def _lines(axes: SvgAxes, curves: list[list[Point]], means: list[Point]) -> list[Markup]:
    seeds = curves if len(curves) > 1 else []
    return [line for points in seeds for line in axes.curve(points, "seed")] + axes.curve(means, "curve")


def _dots(
    axes: SvgAxes, member: Member, seeds: list[list[LayerView]], means: list[Point], what: str
) -> Iterator[Markup]:
    """A mark for every number, with the number as its title; crosses for missing numbers."""
    layers = list(zip(*seeds, strict=True))
    if all(LAYER_QUANTITIES[what](view).value is None for views in layers for view in views):
        yield axes.words(LAYER_QUANTITIES[what](seeds[0][0]).text)
    for (at, mean), views in zip(means, layers, strict=True):
        cells = [LAYER_QUANTITIES[what](view) for view in views]
        for name, cell in zip(member.seeds, cells, strict=True):
            title = mark_title(f"layer {at:g}", name, cell.text)
            if cell.value is None:
                yield axes.cross(at, title)
            elif len(cells) > 1:
                yield axes.dot(at, cell.value, "speck", 1.7, title)
        if mean is not None:
            kind = "dot open" if what == _COSINE and views[0].label != "none" else "dot"
            title = mark_title(f"layer {at:g}", "all seeds" if len(cells) > 1 else "", _over_seeds(cells, what).text)
            yield axes.dot(at, mean, kind, 3.2 if len(layers) <= _MANY else 2.2, title)


def _band(axes: SvgAxes, seeds: list[list[LayerView]]) -> list[Markup]:
    """The null's band, of the seed where it is widest."""
    widths = [[view.band for view in views if view.band is not None] for views in zip(*seeds, strict=True)]
    known = [(axes.x(at), max(bands)) for at, bands in enumerate(widths) if bands]
    if not known:
        return []
    if len(known) == 1:
        known = [(known[0][0] - 6, known[0][1]), (known[0][0] + 6, known[0][1])]
    above = [f"{x},{axes.level(band)}" for x, band in known]
    below = [f"{x},{axes.level(-band)}" for x, band in reversed(known)]
    return [Markup('<polygon class="null" points="{}"/>').format(" ".join(above + below))]


def _labels(seeds: list[list[LayerView]]) -> list[str]:
    """Notes on layers whose cosine follows from the method's construction or fit."""
    layers: dict[str, list[int]] = {}
    for view in seeds[0]:
        if view.label != "none":
            layers.setdefault(LABELS.get(view.label, view.label), []).append(view.index)
    return [f"○ cosine {label}: layer{'s' if len(at) > 1 else ''} {number_ranges(at)}" for label, at in layers.items()]


def _reasons(member: Member, seeds: list[list[LayerView]]) -> list[str]:
    """Notes on the crosses: the quantity, the layers and the reason, each reason once."""
    layers: dict[tuple[str, str], dict[int, list[str]]] = {}
    for what, read in LAYER_QUANTITIES.items():
        for name, seed in zip(member.seeds, seeds, strict=True):
            for view in seed:
                cell = read(view)
                if cell.value is None:
                    layers.setdefault((what, cell.full), {}).setdefault(view.index, []).append(name)
    notes = []
    for (what, reason), at in layers.items():
        some = sorted({name for names in at.values() for name in names if len(names) < len(seeds)} - {""})
        of = f" ({', '.join(some)})" if some else ""
        notes.append(f"✕ {what}, layer{'s' if len(at) > 1 else ''} {number_ranges(at)}{of}: {reason}")
    return notes


def _known(views: Sequence[LayerView], what: str) -> list[float]:
    return [value for view in views if (value := LAYER_QUANTITIES[what](view).value) is not None]
