"""Figures shared by the studies: curves over layers and over epochs, accuracy bars; each over all seeds of a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal

from walkback.judge.number import Number
from walkback.judge.quantities import Quantities
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Plot, Series
from walkback_papers.results import Case
from walkback_papers.tables import claim_over_seeds, mean_cell, range_cell

LayerQuantity = Literal["hidden_norm", "grad_norm_128", "credit_norm", "cos"]
"""A number of one layer: |h_l|, |g_l| @128, |a_l| or the cosine of a_l and g_l."""
BAND = "Lines: means over seeds; bands and bars: smallest to largest seed."
"""Caption of figures whose bands or bars show the range over seeds."""


def message(holds: bool | None, claim: str, otherwise: str) -> str:
    """A figure's title: the claim only where these results support it."""
    return claim if holds else otherwise


def listed(names: Iterable[str]) -> str:
    """Names as in a sentence: `A, B and C`; `none` without any."""
    *most, last = list(names) or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def in_same_range(plots: Sequence[Plot]) -> tuple[Plot, ...]:
    """The plots with one range of values, so that they can be compared; values from smallest to largest, with a
    margin."""
    log = plots[0].y_log
    drawn = [
        math.log10(value) if log else value
        for plot in plots
        for values in [*(v for s in plot.series for v in (s.y, s.low, s.high)), plot.levels.values()]
        for value in values
        if value is not None and math.isfinite(value) and (value > 0 or not log)
    ]
    if not drawn:
        return tuple(plots)
    low, high = min(drawn), max(drawn)
    margin = 0.05 * (high - low) or 0.5
    ends = (10 ** (low - margin), 10 ** (high + margin)) if log else (low - margin, high + margin)
    return tuple(replace(plot, y_range=ends) for plot in plots)


def short_power(value: float) -> str:
    """A small number with one digit and a short exponent: 8e-7."""
    return f"{value:.0e}".replace("e-0", "e-")


def layer_values(q: Quantities, quantity: LayerQuantity) -> list[Number]:
    """A quantity of every layer h_0..h_L."""
    found = []
    for layer in q.layers:
        if quantity in ("hidden_norm", "grad_norm_128"):
            found.append(layer.hidden_norm if quantity == "hidden_norm" else layer.grad_norm_128)
        elif layer.credit is None:
            found.append(Number.missing("no credit was measured"))
        else:
            found.append(layer.credit.cos if quantity == "cos" else layer.credit.norm)
    return found


def layer_cells(seeds: Sequence[Quantities], quantity: LayerQuantity, spec: str) -> list[Cell]:
    """One cell per layer, over seeds: norms as a range, cosines as a mean; INVALID where a seed's may not be used."""
    cells = []
    for numbers in zip(*(layer_values(q, quantity) for q in seeds), strict=True):
        bad = [number for number in numbers if not number.ok]
        values = [number.known for number in numbers if number.ok]
        if bad:
            cells.append(Cell(bad[0].word, None, bad[0].reason))
        else:
            cells.append(mean_cell(values, spec) if quantity == "cos" else range_cell(values, spec))
    return cells


def over_layers(name: str, seeds: Sequence[Quantities], quantity: LayerQuantity, style: str = "") -> Series:
    """A curve over layers; a layer whose value may not be used in one seed is not drawn."""
    columns = [
        [number.known for number in numbers] if all(number.ok for number in numbers) else []
        for numbers in zip(*(layer_values(q, quantity) for q in seeds), strict=True)
    ]
    return series_of(name, range(len(columns)), columns, style)


def over_epochs(
    name: str, cases: Sequence[Case], get: Callable[[Mapping[str, Any]], float | None], style: str = ""
) -> Series:
    """A curve over epochs; `get` reads the value from a row of the log."""
    columns = [[get(row) for row in rows] for rows in zip(*(case.log for case in cases), strict=False)]
    epochs = [int(row["epoch"]) for row in min((case.log for case in cases), key=len)]
    complete = [[v for v in column if v is not None] if None not in column else [] for column in columns]
    return series_of(name, epochs, complete, style, points=False)


def accuracy_bars(
    groups: Mapping[str, Mapping[str, Sequence[float]]], caption: str, methods: Mapping[str, Sequence[Case]]
) -> Figure:
    """Accuracies side by side: `groups` by kind of run (trained, own frozen baseline, ...), then by method and seed.

    The title says for which methods the depth claim stands.
    """
    bars = []
    for name, accuracies in groups.items():
        series = series_of(name, range(len(methods)), [list(accuracies[method]) for method in methods])
        bars.append(replace(series, mark="bars"))
    plot = Plot("", "", "test accuracy", tuple(bars), ticks=tuple(methods))
    stands = {name: claim_over_seeds(cases, "depth").outcome == "stands" for name, cases in methods.items()}
    with_depth, without = ([name for name in methods if stands[name] is found] for found in (True, False))
    title = f"The depth claim stands for {listed(with_depth)}; it does not for {listed(without)}"
    return Figure("accuracies", title, (plot,), f"{caption} Bars: means over seeds.", columns=1, zoom=1.2)


def accuracies_with_frozen(methods: Mapping[str, Sequence[Case]]) -> dict[str, dict[str, Sequence[float]]]:
    """Accuracies by kind of run and method: trained, the method's own frozen baseline, backprop's frozen baseline."""
    frozen = {name: cases[0].report.evidence.frozen for name, cases in methods.items()}
    return {
        "trained": {name: [case.accuracy for case in cases] for name, cases in methods.items()},
        "own frozen baseline": {name: found["method_shell"] for name, found in frozen.items()},
        "bp frozen baseline": {name: found["bp_shell"] for name, found in frozen.items()},
    }


def series_of(
    name: str, x: Sequence[float], columns: Sequence[list[float]], style: str = "", points: bool = True
) -> Series:
    """A curve through the mean of each column of seeds, with its smallest and largest; empty columns are not drawn."""
    mean, low, high = ([end(column) if column else None for column in columns] for end in (fmean, min, max))
    return Series(name, x, mean, style, low=low, high=high, mark="both" if points else "line")
