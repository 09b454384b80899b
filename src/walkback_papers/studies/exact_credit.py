"""Exact credit: where a bridge fails, is its credit at fault, or the site, the penalty or the credit's size?

Papers: ours; the bridges and the penalty are those of P1 and P2, the oracle controls are ours
Claim: without a penalty exact credit at each block's input fails too; under the penalty the bridges' credit is at fault
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from walkback.core.configuration import RunConfig
from walkback.core.settings import Scalar, Spec
from walkback.judge.blocks import Block
from walkback.judge.evidence import METHOD_SHELL
from walkback.judge.number import Number
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, StudyReport, Table
from walkback_papers.plots import BAND, listed, series_of
from walkback_papers.results import Case, Results
from walkback_papers.scale import Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    accuracy_gain,
    all_true,
    caption,
    combined_finding,
    depth_fails,
    is_above,
    is_within,
    make_study_report,
    margin_cell,
    mean_cell,
    not_,
    numbers_cell,
    range_cell,
    unanimous,
    verdict_cell,
)
from walkback_papers.variants import BRIDGES, PENALTY_SIZE

_RULES = {"BP": "bp", "State Bridge": "state_bridge", "Credit Bridge": "credit_bridge"}
_LENGTHS = ("short", "full")
Site = Literal["output", "input"]
_SITES: tuple[Site, ...] = ("output", "input")
_PENALTIES = (0.0, PENALTY_SIZE)


@dataclass(frozen=True)
class _Training:
    """One method at a site, with or without the penalty."""

    method: str
    site: Site
    penalty: float
    is_direction_oracle: bool = False

    @property
    def name(self) -> str:
        penalty = " with λ" if self.penalty else ""
        return f"{self.method}{' (O3)' if self.is_direction_oracle else ''} at {self.site}{penalty}"

    @property
    def text(self) -> str:
        """The method as written on the command line."""
        settings: dict[str, Scalar] = {"site": "input"} if self.site == "input" else {}
        settings |= {"penalty": self.penalty} if self.penalty else {}
        settings |= {"credit": "direction"} if self.is_direction_oracle else {}
        return str(Spec(_RULES[self.method], settings))


_BACKPROP = [_Training("BP", site, penalty) for penalty in _PENALTIES for site in _SITES]
_LEFT_OUT = {"smoke": {"Credit Bridge"}}
"""Bridges that a scale leaves out: on two cores this one takes longer than all the rest."""
_NO_BLOCKS = "nothing was measured by block"
_Found = Mapping[_Training, Sequence[Case]]


class ExactCredit(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [
            config
            for length in _LENGTHS
            for training in _trainings(length, scale)
            for config in scale.runs([training.text], epochs=length)
        ]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found: dict[str, _Found] = {
            length: {
                training: results.cases(scale.runs([training.text], epochs=length))
                for training in _trainings(length, scale)
            }
            for length in _LENGTHS
        }
        cases = {length: [case for each in found[length].values() for case in each] for length in _LENGTHS}
        captions = {length: caption(scale, cases[length]) for length in _LENGTHS}
        tables = [_numbers(length, found[length], captions[length]) for length in _LENGTHS]
        short, words = found["short"], captions["short"]
        return make_study_report(
            "exact-credit",
            "Exact credit in place of a method's",
            "Where a bridge fails, is its credit at fault, or the site, the penalty or the credit's size?",
            scale,
            [case for length in _LENGTHS for case in cases[length]],
            _findings(found),
            tables=[
                *tables,
                _oracles(short, words),
                _by_block("used-cosines", "Used cosine by block", short, lambda block: block.used_cos, "+.3f", words),
                _by_block("credit-ratios", "Credit ratio by block", short, lambda block: block.credit_ratio, "", words),
            ],
            figures=[_figure(short, words)],
        )


def _trainings(length: str, scale: Scale) -> list[_Training]:
    """Backprop at both training lengths; the bridges and their direction oracles at the short one."""
    if length != "short":
        return _BACKPROP
    left_out = _LEFT_OUT.get(scale.name, set())
    bridges = [
        _Training(name, site, size)
        for name in BRIDGES
        for size in _PENALTIES
        for site in _SITES
        if name not in left_out
    ]
    return [*_BACKPROP, *bridges, *map(_direction_oracle, bridges)]


def _bridges(found: _Found) -> list[_Training]:
    return [each for each in found if each.method in BRIDGES and not each.is_direction_oracle]


def _direction_oracle(training: _Training) -> _Training:
    """O3: the exact direction, with the size of this training's own credit."""
    return replace(training, is_direction_oracle=True)


def _exact(training: _Training, site: Site = "output") -> _Training:
    """Exact credit with this training's penalty: at the block's output (O1), or at its input (O2)."""
    return _Training("BP", site, training.penalty)


def _findings(found: Mapping[str, _Found]) -> list[Finding]:
    short = found["short"]
    free, penalised = ([each for each in _bridges(short) if each.penalty == size] for size in _PENALTIES)
    at_input = {size: _Training("BP", "input", size) for size in _PENALTIES}
    lengths = {length: f"{cases[at_input[0.0]][0].resolved.config.epochs} epochs" for length, cases in found.items()}
    thresholds = short[at_input[0.0]][0].report.thresholds
    line, small = thresholds.frozen_acc_margin_pp, thresholds.small_alignment

    def by_length(answer: Callable[[_Found], bool | None]) -> dict[str, bool | None]:
        return {lengths[length]: answer(cases) for length, cases in found.items()}

    def gain(ours: _Training, theirs: _Training) -> bool | None:
        return is_above(accuracy_gain(short[ours], short[theirs]))

    return [
        combined_finding(
            "exact-input-no-penalty-fails",
            "Without a penalty exact credit at each block's input is walked back: there, a failure of D1 to D3 cannot "
            "be attributed to the quality of the credit.",
            by_length(lambda cases: _walked_back(cases[at_input[0.0]])),
        ),
        combined_finding(
            "exact-input-update-not-aligned",
            "Without a penalty exact credit at the input has a cosine of 1 at every state, and yet some block's update "
            f"cosine is below {small:g}: a cosine of 1 does not imply a descent update at that site.",
            by_length(lambda cases: _cosine_1_without_update(cases[at_input[0.0]])),
        ),
        combined_finding(
            "exact-input-penalty-same-accuracy",
            f"With λ = {PENALTY_SIZE:g} exact credit gives the same accuracy at both sites, to {line:g} pp.",
            by_length(
                lambda cases: is_within(
                    accuracy_gain(
                        cases[at_input[PENALTY_SIZE]], cases[_Training("BP", "output", PENALTY_SIZE)]
                    ).interval,
                    line,
                )
            ),
        ),
        combined_finding(
            "exact-input-penalty-stands",
            f"With λ = {PENALTY_SIZE:g} exact credit at the input is trustworthy.",
            by_length(lambda cases: not_(_walked_back(cases[at_input[PENALTY_SIZE]]))),
        ),
        combined_finding(
            "bridge-input-no-penalty-not-attributable",
            "Where a bridge at the input is walked back without a penalty, so is exact credit at the input.",
            {each.name: _with_exact(short, each) for each in free if each.site == "input"},
        ),
        combined_finding(
            "bridge-failure-is-the-credit",
            f"With λ = {PENALTY_SIZE:g} a bridge's trained blocks do not beat its frozen ones, those of exact credit "
            "do, and exact credit is more accurate: the failure is the credit's.",
            {
                each.name: all_true(
                    [depth_fails(short[each]), not_(depth_fails(short[_exact(each)])), gain(_exact(each), each)]
                )
                for each in penalised
            },
        ),
        combined_finding(
            "bridge-direction-costs",
            f"With λ = {PENALTY_SIZE:g} the exact direction with the bridge's own size (O3) is more accurate than the "
            "bridge: its direction costs accuracy.",
            {each.name: gain(_direction_oracle(each), each) for each in penalised},
        ),
        combined_finding(
            "bridge-size-costs",
            f"With λ = {PENALTY_SIZE:g} exact credit is more accurate than the exact direction with the bridge's own "
            "size (O3): its size costs accuracy.",
            {each.name: gain(_exact(each), _direction_oracle(each)) for each in penalised},
        ),
    ]


def _walked_back(cases: Sequence[Case]) -> bool | None:
    """Whether edition three walks it back: True in every seed, False in none; None if seeds differ or it is open."""
    truth = {"walked_back": True, "trustworthy": False}
    return unanimous(truth.get(case.report.verdicts["three"].outcome) for case in cases)


def _with_exact(found: _Found, bridge: _Training) -> bool | None:
    """Whether exact credit at the input is walked back, too; None where the bridge is not."""
    return _walked_back(found[_exact(bridge, "input")]) if _walked_back(found[bridge]) else None


def _cosine_1_without_update(cases: Sequence[Case]) -> bool | None:
    """Whether the credit is the gradient at every state but some block's update hardly aligned with it, by seed."""
    return unanimous(_update_fails(case) if _is_exact(case) else None for case in cases)


def _is_exact(case: Case) -> bool:
    credits = [layer.credit for layer in case.report.quantities.layers]
    return all(credit is not None and credit.cos.ok and credit.cos.known > 1 - 1e-3 for credit in credits)


def _update_fails(case: Case) -> bool | None:
    """Whether some block's update cosine is below `small_alignment`; None where one is not known."""
    found = [block.update_cos for block in case.report.quantities.blocks]
    if any(number.ok and number.known < case.report.thresholds.small_alignment for number in found):
        return True
    return None if not found or not all(number.ok for number in found) else False


def _numbers(length: str, found: _Found, words: str) -> Table:
    heads = (
        "training", "accuracy", "over frozen, pp", "growth (D1)", "‖g_L‖ @128", "smallest used cosine", "credit ratio",
        "smallest update cosine", "three",
    )  # fmt: skip
    note = (
        f"λ = {PENALTY_SIZE:g}. O3: the exact direction with the size of the method's own credit. Margins over the own "
        "frozen baseline, paired by seed, with 95% t intervals. Growth (D1) and ‖g_L‖: smallest to largest seed; "
        "credit ratio: smallest to largest median over blocks and seeds. Used cosine and update cosine: of the block "
        "where they are smallest."
    )
    rows = tuple(_row(training.name, cases) for training, cases in found.items())
    epochs = next(iter(found.values()))[0].resolved.config.epochs
    return Table(length, f"All trainings, {epochs} epochs", heads, rows, f"{words} {note}")


def _row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    blocks = range(cases[0].resolved.net.depth)
    ratios = [_of_block(case, index, lambda block: block.credit_ratio).value for case in cases for index in blocks]
    return (
        Cell(name),
        mean_cell([case.accuracy for case in cases], ".3f"),
        margin_cell(cases[0].report.evidence.margin(METHOD_SHELL)),
        *(range_cell([case.report.flags[check].value for case in cases]) for check in ("D1", "D2")),
        numbers_cell(cases, lambda case: _smallest(case, lambda block: block.used_cos), "+.3f"),
        range_cell(ratios),
        numbers_cell(cases, lambda case: _smallest(case, lambda block: block.update_cos), "+.3f"),
        verdict_cell(cases, "three"),
    )


def _smallest(case: Case, get: Callable[[Block], Number]) -> Number:
    """The smallest of the blocks' numbers; the first that may not be used, if there is one."""
    numbers = [get(block) for block in case.report.quantities.blocks]
    unusable = [number for number in numbers if not number.ok]
    if unusable or not numbers:
        return unusable[0] if unusable else Number.missing(_NO_BLOCKS)
    return min(numbers, key=lambda number: number.known)


def _oracles(found: _Found, words: str) -> Table:
    heads = (
        "training", "over frozen, pp", "O1 over frozen, pp", "O3 over frozen, pp", "minus O1, pp", "minus O2, pp",
        "minus O3, pp",
    )  # fmt: skip
    rows = tuple(_oracle_row(found, training) for training in _bridges(found))
    note = (
        "O1: exact credit at the block's output (backprop with the same λ); O2: at its input; O3: the exact direction "
        "with the size of the method's own credit. Each over a frozen baseline of its own. Differences of accuracy are "
        "paired by seed, with 95% t intervals."
    )
    return Table("oracles", "The bridges against exact credit", heads, rows, f"{words} {note}")


def _oracle_row(found: _Found, training: _Training) -> tuple[Cell, ...]:
    direction = _direction_oracle(training)
    over_frozen = (training, _exact(training), direction)
    against = (_exact(training), _exact(training, "input"), direction)
    return (
        Cell(training.name),
        *(margin_cell(found[each][0].report.evidence.margin(METHOD_SHELL)) for each in over_frozen),
        *(margin_cell(accuracy_gain(found[training], found[each])) for each in against),
    )


def _by_block(name: str, title: str, found: _Found, get: Callable[[Block], Number], spec: str, words: str) -> Table:
    """A number of every block, over seeds: as a mean with `spec`, without it from smallest to largest."""
    depth = next(iter(found.values()))[0].resolved.net.depth

    def cell(cases: Sequence[Case], index: int) -> Cell:
        if spec:
            return numbers_cell(cases, lambda case: _of_block(case, index, get), spec)
        return range_cell([_of_block(case, index, get).value for case in cases])

    rows = tuple(
        (Cell(training.name), *(cell(cases, index) for index in range(depth))) for training, cases in found.items()
    )
    return Table(name, title, ("training", *(f"block {index}" for index in range(depth))), rows, words)


def _of_block(case: Case, index: int, get: Callable[[Block], Number]) -> Number:
    blocks = case.report.quantities.blocks
    return get(blocks[index]) if blocks else Number.missing(_NO_BLOCKS)


def _figure(found: _Found, words: str) -> Figure:
    """The used cosine of every block at the input, without and with the penalty."""

    def plot(size: float) -> Plot:
        series = []
        for training in (_Training(method, "input", size) for method in _RULES):
            if training not in found:
                continue
            cases = found[training]
            depth = cases[0].resolved.net.depth
            by_block = [
                [_of_block(case, index, lambda block: block.used_cos) for case in cases] for index in range(depth)
            ]
            columns = [
                [number.known for number in numbers] if all(number.ok for number in numbers) else []
                for numbers in by_block
            ]
            series.append(series_of(training.method, range(len(columns)), columns))
        title = f"λ = {size:g}" if size else "no penalty"
        return Plot(title, "block", "used cosine", tuple(series))

    plots = tuple(plot(size) for size in _PENALTIES)
    lowest = [_lowest(plot, "BP") for plot in plots]
    title = "Used cosine of exact credit at each block's input: lowest " + listed(
        [f"{value:+.2f} ({plot.title})" for plot, value in zip(plots, lowest, strict=True) if value is not None]
    )
    return Figure("used-cosine", title, plots, f"{words} {BAND}")


def _lowest(plot: Plot, label: str) -> float | None:
    """The smallest value of a curve."""
    return min((y for series in plot.series if series.label == label for y in series.y if y is not None), default=None)


STUDY = ExactCredit()
