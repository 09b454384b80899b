"""A network before its first step and at its end: norms, block outputs and weights, of all seeds of a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from walkback.judge.inflation import block_move, branch_growth, matrix_move, matrix_product
from walkback.judge.number import Number, first_bad
from walkback.judge.quantities import quantities
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Finding, Table
from walkback_papers.results import Case
from walkback_papers.tables import all_true, range_cell, unanimous

_HEADS = (
    "method", "‖h_L‖ first", "last", "‖g_L‖ @128 first", "last", "block outputs grow, ×", "blocks' weights move, ×",
    "w1 and w2 move, ×", "‖w1‖·‖w2‖",
)  # fmt: skip
NOTE = (
    "First: before the first step. Smallest to largest seed. Block outputs: ‖f_l(h_l)‖, last over first. Weights move: "
    "‖θ − θ_0‖/‖θ_0‖, of all parameters of a block as one vector, and of each w1 and w2. Over blocks: geometric means."
)
TANDEM = 10.0
"""The factor within which two changes count as one."""


@dataclass(frozen=True)
class Way:
    """What training made of one run's network."""

    case: Case

    @cached_property
    def norms(self) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
        """Of ‖h_L‖ and of ‖g_L‖ @128: first and last."""
        t = DiagnosticThresholds()
        first, last = (quantities(taken, t).top for taken in (self.case.close(0), self.case.measurements))
        return (first.hidden_norm, last.hidden_norm), (first.grad_norm_128, last.grad_norm_128)

    def is_tandem(self) -> bool | None:
        """Whether ‖g_L‖ fell by about the factor by which ‖h_L‖ grew."""
        (h_first, h_last), (g_first, g_last) = self.norms
        every = [number.known for number in (h_first, h_last, g_first, g_last) if number.ok]
        if len(every) < 4 or min(every) <= 0:
            return None
        change = math.log10(h_last.known / h_first.known * (g_last.known / g_first.known))
        return abs(change) < math.log10(TANDEM) and h_last.known > h_first.known


def way_table(methods: Mapping[str, Sequence[Case]], words: str) -> Table:
    rows = []
    for name, cases in methods.items():
        ways = [Way(case) for case in cases]
        ends = [[way.norms[what][end] for way in ways] for what in (0, 1) for end in (0, 1)]
        columns = [*ends, *([get(way) for way in ways] for get in (_outputs, _weights, _matrices, _product))]
        rows.append((Cell(name), *(_from_to(column) for column in columns)))
    return Table("way", "From the first weights to the last", _HEADS, tuple(rows), words)


def way_findings(dfa: Sequence[Case], bp: Sequence[Case]) -> list[Finding]:
    theirs, ours = [Way(case) for case in bp], [Way(case) for case in dfa]
    said = "; ".join(
        f"{words}: DFA {_from_to([get(way) for way in ours]).text}, BP {_from_to([get(way) for way in theirs]).text}"
        for words, get in (("Weights move, ×", _weights), ("block outputs grow, ×", _outputs))
    )
    norms = [_from_to([way.norms[what][end] for way in ours]).text for what in (0, 1) for end in (0, 1)]
    return [
        Finding(
            "DFA moves the blocks' weights farther and makes their outputs larger than backprop does.",
            all_true(
                unanimous(_is_more(get, pair) for pair in zip(ours, theirs, strict=True))
                for get in (_weights, _outputs)
            ),
            f"{said}.",
        ),
        Finding(
            f"Under DFA ‖g_L‖ falls by the factor by which ‖h_L‖ grows, give or take a factor of {TANDEM:g}.",
            unanimous(way.is_tandem() for way in ours),
            f"‖h_L‖ {norms[0]} at first and {norms[1]} at the end, ‖g_L‖ {norms[2]} and {norms[3]}.",
        ),
    ]


def _outputs(way: Way) -> Number:
    return branch_growth(way.case.close(0), way.case.measurements)


def _weights(way: Way) -> Number:
    return block_move(way.case.measurements)


def _matrices(way: Way) -> Number:
    return matrix_move(way.case.measurements)


def _product(way: Way) -> Number:
    return matrix_product(way.case.measurements)


def _is_more(get: Callable[[Way], Number], pair: tuple[Way, Way]) -> bool | None:
    left, right = (get(way) for way in pair)
    return left.known > right.known if left.ok and right.ok else None


def _from_to(found: Sequence[Number]) -> Cell:
    bad = first_bad(found)
    return Cell(bad.word, None, bad.reason) if bad is not None else range_cell([number.known for number in found])
