"""Curves over layers and over epochs, of all seeds of a method together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal

from walkback.judge.number import Number
from walkback.judge.quantities import Quantities
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Plot, Series
from walkback_papers.results import Case
from walkback_papers.tables import mean_cell, range_cell

What = Literal["hidden_norm", "grad_norm_128", "credit_norm", "cos"]
"""What a layer may be asked for: |h_l|, |g_l| @128, |a_l| or the cosine of a_l and g_l."""
BAND = "Lines: means over seeds; bands and bars: smallest to largest seed."


def by_hand(value: float) -> str:
    """A small number as it is written by hand: 8e-7."""
    return f"{value:.0e}".replace("e-0", "e-")


def at_layers(q: Quantities, what: What) -> list[Number]:
    """A number of every layer h_0..h_L."""
    found = []
    for layer in q.layers:
        if what in ("hidden_norm", "grad_norm_128"):
            found.append(layer.hidden_norm if what == "hidden_norm" else layer.grad_norm_128)
        elif layer.credit is None:
            found.append(Number.missing("no credit was measured"))
        else:
            found.append(layer.credit.cos if what == "cos" else layer.credit.norm)
    return found


def layer_cells(seeds: Sequence[Quantities], what: What, spec: str) -> list[Cell]:
    """A cell for each layer, over seeds: norms from smallest to largest; INVALID where a seed's may not be used."""
    cells = []
    for numbers in zip(*(at_layers(q, what) for q in seeds), strict=True):
        bad = [number for number in numbers if not number.ok]
        values = [number.known for number in numbers if number.ok]
        if bad:
            cells.append(Cell(bad[0].word, None, bad[0].reason))
        else:
            cells.append(mean_cell(values, spec) if what == "cos" else range_cell(values, spec))
    return cells


def over_layers(name: str, seeds: Sequence[Quantities], what: What, style: str = "") -> Series:
    """A number along the layers; a layer that may not be used in one seed is not drawn."""
    columns = [
        [number.known for number in numbers] if all(number.ok for number in numbers) else []
        for numbers in zip(*(at_layers(q, what) for q in seeds), strict=True)
    ]
    return series_of(name, range(len(columns)), columns, style)


def over_epochs(
    name: str, cases: Sequence[Case], get: Callable[[Mapping[str, Any]], float | None], style: str = ""
) -> Series:
    """A number of the logs along the epochs; `get` reads it from a row."""
    columns = [[get(row) for row in rows] for rows in zip(*(case.log for case in cases), strict=False)]
    epochs = [int(row["epoch"]) for row in min((case.log for case in cases), key=len)]
    whole = [[v for v in column if v is not None] if None not in column else [] for column in columns]
    return series_of(name, epochs, whole, style, points=False)


def accuracy_bars(groups: Mapping[str, Mapping[str, Sequence[float]]], words: str) -> Figure:
    """Accuracies side by side: `groups` by what they are of (trained, shell, ...), then by method, then by seed."""
    methods = tuple(next(iter(groups.values())))
    bars = []
    for name, found in groups.items():
        made = series_of(name, range(len(methods)), [list(found[method]) for method in methods])
        bars.append(replace(made, mark="bars"))
    plot = Plot("Accuracy beside frozen blocks", "", "test accuracy", tuple(bars), ticks=methods)
    return Figure("accuracies", "Trained blocks and frozen ones", (plot,), f"{words} Bars: means over seeds.")


def with_shells(methods: Mapping[str, Sequence[Case]]) -> dict[str, dict[str, Sequence[float]]]:
    """The accuracies of some methods, of their own shells and of the shells trained by backprop."""
    frozen = {name: cases[0].report.evidence.frozen for name, cases in methods.items()}
    return {
        "trained": {name: [case.accuracy for case in cases] for name, cases in methods.items()},
        "own shell": {name: found["method_shell"] for name, found in frozen.items()},
        "bp shell": {name: found["bp_shell"] for name, found in frozen.items()},
    }


def series_of(
    name: str, x: Sequence[float], columns: Sequence[list[float]], style: str = "", points: bool = True
) -> Series:
    """A curve through the means of columns of seeds, with its smallest and largest; an empty column is not drawn."""
    mean, low, high = ([end(column) if column else None for column in columns] for end in (fmean, min, max))
    return Series(name, x, mean, style, low=low, high=high, mark="both" if points else "line")
