"""How far training moves a network: norms, block outputs and weights before the first step and at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from walkback.judge.number import Number, first_bad
from walkback.judge.quantities import quantities
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.judge.weight_growth import block_move, branch_growth, matrix_move, matrix_product
from walkback.report.cells import Cell
from walkback.report.study_report import Finding, Table
from walkback_papers.results import Case
from walkback_papers.tables import all_true, range_cell, unanimous

_HEADS = (
    "method", "‖h_L‖ first", "last", "‖g_L‖ @128 first", "last", "block outputs grow, ×", "blocks' weights move, ×",
    "w1 and w2 move, ×", "‖w1‖·‖w2‖",
)  # fmt: skip
WEIGHT_CHANGE_NOTE = (
    "First: before the first step. Smallest to largest seed. Block outputs: ‖f_l(h_l)‖, last over first. Weights move: "
    "‖θ − θ_0‖/‖θ_0‖, of all parameters of a block as one vector, and of each w1 and w2. Over blocks: geometric means."
)
INVERSE_TOLERANCE = 10.0
"""‖g_L‖ falls as ‖h_L‖ grows if the product of the two changes is within this factor of 1."""


@dataclass(frozen=True)
class WeightChange:
    """The change that training made to one run's network."""

    case: Case

    @cached_property
    def norms(self) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
        """(first, last) of ‖h_L‖ and (first, last) of ‖g_L‖ @128."""
        t = DiagnosticThresholds()
        first, last = (
            quantities(measurements, t).top
            for measurements in (self.case.measurements_after(0), self.case.measurements)
        )
        return (first.hidden_norm, last.hidden_norm), (first.grad_norm_128, last.grad_norm_128)

    def norms_change_inversely(self) -> bool | None:
        """Whether ‖g_L‖ fell by about the factor by which ‖h_L‖ grew."""
        (h_first, h_last), (g_first, g_last) = self.norms
        known = [number.known for number in (h_first, h_last, g_first, g_last) if number.ok]
        if len(known) < 4 or min(known) <= 0:
            return None
        change = math.log10(h_last.known / h_first.known * (g_last.known / g_first.known))
        return abs(change) < math.log10(INVERSE_TOLERANCE) and h_last.known > h_first.known


def weight_change_table(methods: Mapping[str, Sequence[Case]], caption: str) -> Table:
    """One row per method: its norms, block outputs and weights, over seeds."""
    rows = []
    for name, cases in methods.items():
        changes = [WeightChange(case) for case in cases]
        norms = [[change.norms[which][end] for change in changes] for which in (0, 1) for end in (0, 1)]
        factors = (_output_growth, _block_move, _matrix_move, _matrix_product)
        columns = [*norms, *([get(change) for change in changes] for get in factors)]
        rows.append((Cell(name), *(_range_cell(column) for column in columns)))
    return Table("way", "From the first weights to the last", _HEADS, tuple(rows), caption)


def weight_change_findings(dfa: Sequence[Case], bp: Sequence[Case]) -> list[Finding]:
    """Whether DFA moves weights farther than backprop, and whether its norms change inversely."""
    dfa_changes, bp_changes = [WeightChange(case) for case in dfa], [WeightChange(case) for case in bp]
    factors = "; ".join(
        f"{words}: DFA {_range_cell([get(change) for change in dfa_changes]).text}, "
        f"BP {_range_cell([get(change) for change in bp_changes]).text}"
        for words, get in (("Weights move, ×", _block_move), ("block outputs grow, ×", _output_growth))
    )
    norms = [
        _range_cell([change.norms[which][end] for change in dfa_changes]).text for which in (0, 1) for end in (0, 1)
    ]
    return [
        Finding(
            "dfa-moves-weights-more",
            "DFA moves the blocks' weights farther and makes their outputs larger than backprop does.",
            all_true(
                unanimous(_is_larger(get, pair) for pair in zip(dfa_changes, bp_changes, strict=True))
                for get in (_block_move, _output_growth)
            ),
            f"{factors}.",
        ),
        Finding(
            "gradient-falls-as-stream-grows",
            f"Under DFA ‖g_L‖ falls by the factor by which ‖h_L‖ grows, within a factor of {INVERSE_TOLERANCE:g}.",
            unanimous(change.norms_change_inversely() for change in dfa_changes),
            f"‖h_L‖ {norms[0]} at first and {norms[1]} at the end, ‖g_L‖ {norms[2]} and {norms[3]}.",
        ),
    ]


def _output_growth(change: WeightChange) -> Number:
    return branch_growth(change.case.measurements_after(0), change.case.measurements)


def _block_move(change: WeightChange) -> Number:
    return block_move(change.case.measurements)


def _matrix_move(change: WeightChange) -> Number:
    return matrix_move(change.case.measurements)


def _matrix_product(change: WeightChange) -> Number:
    return matrix_product(change.case.measurements)


def _is_larger(get: Callable[[WeightChange], Number], pair: tuple[WeightChange, WeightChange]) -> bool | None:
    left, right = (get(change) for change in pair)
    return left.known > right.known if left.ok and right.ok else None


def _range_cell(numbers: Sequence[Number]) -> Cell:
    """Smallest to largest; the reason where one may not be used."""
    bad = first_bad(numbers)
    return Cell(bad.word, None, bad.reason) if bad is not None else range_cell([number.known for number in numbers])
