"""Replayed logs: when does each detector first fire, and how much accuracy would stopping there have cost?

Papers: P1 section 3, P2 figures 4 and 5
Claim: under DFA D2 fires within the first epochs and D1 after it, with no accuracy still to come; under BP none fires
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.core.configuration import RunConfig
from walkback.judge.statistics import Margin, paired_margin
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, StudyReport, Table
from walkback_papers.plots import BAND, listed, over_epochs, short_power
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.studies.cross_architecture import NETWORKS
from walkback_papers.study import Study
from walkback_papers.tables import (
    PAPERS_FLOOR,
    alarm,
    all_true,
    caption,
    first_alarm,
    is_above,
    make_study_report,
    margin_cell,
    mean_cell,
    method_label,
    not_,
    unanimous,
)
from walkback_papers.weight_change import WEIGHT_CHANGE_NOTE, weight_change_findings, weight_change_table

_PLACES = {"resmlp": "full", "vit": "vit", "student": "full"}
"""The papers' networks, with the kind of training of each."""
ON_RESMLP = (*(METHODS[name] for name in ("BP", "FA", "DFA", "State Bridge", "Credit Bridge")), *RAW)
_OTHER_METHODS = (METHODS["BP"], METHODS["DFA"])
MEASURED_AT_START = ("BP", "DFA")
"""Methods measured before their first step, on the ResMLP."""
_MOST = 0.9
"""The share of epochs that counts as most of the compute."""
_Grid = dict[tuple[str, str], list[Case]]
"""Cases by place and method's name."""


@dataclass(frozen=True)
class Detector:
    """A check on one row of a log."""

    name: str
    is_raised: Callable[[Mapping[str, Any]], bool]


T = DiagnosticThresholds()
D1 = Detector("D1", alarm("D1", T))
D2 = Detector(f"D2 at {short_power(T.g_norm_floor)}", alarm("D2", T))
D2_PAPERS = Detector(f"D2 at {short_power(PAPERS_FLOOR)}", alarm("D2", T, PAPERS_FLOOR))
_DETECTORS = (D1, D2, D2_PAPERS)
EARLIEST = (D1, D2_PAPERS)
"""The papers' two detectors at their own thresholds."""


class TemporalReplay(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [config for place in _PLACES for config in _runs_at(scale, place)]

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def epochs_to_measure(self, scale: Scale) -> list[tuple[RunConfig, Sequence[int]]]:
        return [(config, (0,)) for config in scale.runs([METHODS[name] for name in MEASURED_AT_START])]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        grid: _Grid = {
            (place, method_label(method)): found
            for place in _PLACES
            for method, found in results.by_method(_runs_at(scale, place)).items()
        }
        cases = [case for found in grid.values() for case in found]
        alarms = Table(
            "firing",
            "First epoch at which a detector fires",
            ("network", "method", *(detector.name for detector in _DETECTORS), "alarm lasts"),
            tuple(_alarm_row(name, found) for (_, name), found in grid.items()),
            caption(
                scale, cases, f"By seed. {short_power(PAPERS_FLOOR)} is the papers' 1e-7 with batches of 1024, @128."
            ),
        )
        stopping = Table(
            "stopping",
            f"Stopping at the first of {' and '.join(detector.name for detector in EARLIEST)}",
            ("network", "method", "stopped after", "accuracy there", "at the end", "still to come, pp", "saved"),
            tuple(_stopping_row(name, found) for (_, name), found in grid.items()),
            caption(scale, cases, "Saved: share of epochs. Still to come: paired by seed, with its 95% t interval."),
        )
        measured_at_start = {name: grid["resmlp", name] for name in MEASURED_AT_START}
        seen_cases = [case for found in measured_at_start.values() for case in found]
        weights = weight_change_table(measured_at_start, caption(scale, seen_cases, WEIGHT_CHANGE_NOTE))
        return make_study_report(
            "temporal-replay",
            "Temporal replay",
            "When does each detector first fire, and how much accuracy would stopping there have cost?",
            scale,
            cases,
            [*_findings(grid), *weight_change_findings(measured_at_start["DFA"], measured_at_start["BP"])],
            tables=[alarms, stopping, weights],
            figures=[_figure(grid, place, scale) for place in _PLACES],
        )


def _runs_at(scale: Scale, place: str) -> list[RunConfig]:
    methods = ON_RESMLP if place == "resmlp" else _OTHER_METHODS
    return scale.runs(methods, place=place, epochs=_PLACES[place])


def first_alarm_of_any(case: Case, detectors: Iterable[Detector]) -> int | None:
    """The first epoch at which one of these detectors fires; None where none does."""
    found = [epoch for d in detectors if (epoch := first_alarm(case, d.is_raised)) is not None]
    return min(found, default=None)


def stays_on(case: Case, detector: Detector) -> bool | None:
    """Whether a detector that has fired fires in every later epoch too; None where it never fires."""
    first = first_alarm(case, detector.is_raised)
    return None if first is None else all(detector.is_raised(row) for row in case.log if row["epoch"] >= first)


def accuracy_at(case: Case, epoch: int) -> float:
    """Test accuracy after an epoch."""
    (found,) = [row["test_acc"] for row in case.log if row["epoch"] == epoch]
    return float(found)


def epochs_saved(case: Case, epoch: int) -> float:
    """The share of a run's epochs that come after this one."""
    return 1 - epoch / case.resolved.config.epochs


def accuracy_after_stop(cases: Sequence[Case]) -> Margin | None:
    """Accuracy at the end minus that at the first alarm, in percentage points; None where a seed has no alarm."""
    stops = [first_alarm_of_any(case, EARLIEST) for case in cases]
    if None in stops:
        return None
    there = [accuracy_at(case, stop) for case, stop in zip(cases, stops, strict=True) if stop is not None]
    return paired_margin([case.accuracy for case in cases], there)


def _network(cases: Sequence[Case]) -> Cell:
    return Cell(cases[0].resolved.config.arch.name)


def _epochs(found: Iterable[int | None]) -> str:
    shown = ["never" if epoch is None else str(epoch) for epoch in found]
    return shown[0] if len(set(shown)) == 1 else ", ".join(shown)


def _alarm_row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    kept = [stays_on(case, detector) for detector in _DETECTORS for case in cases]
    fired = [answer for answer in kept if answer is not None]
    staying = "–" if not fired else "to the end" if all(fired) else f"to the end in {sum(fired)} of {len(fired)}"
    return (
        _network(cases),
        Cell(name),
        *(Cell(_epochs(first_alarm(case, d.is_raised) for case in cases)) for d in _DETECTORS),
        Cell(staying),
    )


def _stopping_row(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    stops = [first_alarm_of_any(case, EARLIEST) for case in cases]
    head = (_network(cases), Cell(name), Cell(_epochs(stops)))
    end = mean_cell([case.accuracy for case in cases], ".3f")
    known = [(case, stop) for case, stop in zip(cases, stops, strict=True) if stop is not None]
    if len(known) < len(cases):
        why = f"no detector fires in {len(cases) - len(known)} of {len(cases)} seeds"
        no_alarm = Cell("–", None, why)
        return (*head, no_alarm, end, no_alarm, no_alarm)
    there = mean_cell([accuracy_at(case, stop) for case, stop in known], ".3f")
    share = mean_cell([epochs_saved(case, stop) for case, stop in known], ".0%")
    return (*head, there, end, margin_cell(accuracy_after_stop(cases)), share)


def _findings(grid: _Grid) -> list[Finding]:
    bp = [case for (_, name), found in grid.items() if name == "BP" for case in found]
    dfa, student = grid["resmlp", "DFA"], grid["student", "DFA"]
    fired = [case.run.name for case in bp if first_alarm_of_any(case, _DETECTORS) is not None]
    first = [(first_alarm(case, D2_PAPERS.is_raised), first_alarm(case, D1.is_raised)) for case in dfa]
    stops = [first_alarm_of_any(case, EARLIEST) for case in dfa]
    shares = [epochs_saved(case, stop) for case, stop in zip(dfa, stops, strict=True) if stop is not None]
    later_gain = accuracy_after_stop(dfa)
    line = T.frozen_acc_margin_pp
    d2_never = [first_alarm(case, D2_PAPERS.is_raised) is None for case in student]
    return [
        Finding(
            "bp-never-fires",
            "Under backprop no detector ever fires.",
            not fired,
            f"{len(fired)} of {len(bp)} runs have an alarm{': ' + ', '.join(fired) if fired else ''}.",
        ),
        Finding(
            "dfa-always-fires",
            "Under DFA a detector fires in every seed.",
            None not in stops,
            f"First at epoch {_epochs(stops)} of {dfa[0].resolved.config.epochs}.",
        ),
        Finding(
            "d2-before-d1",
            "Under DFA D2, at the papers' floor, fires before D1.",
            unanimous(_is_before(*pair) for pair in first),
            f"D2 at epoch {_epochs(d2 for d2, _ in first)}, D1 at {_epochs(d1 for _, d1 in first)}.",
        ),
        Finding(
            "stopping-loses-little",
            f"When DFA is stopped at the first firing, less than {line:g} pp of accuracy were still to come.",
            not_(is_above(later_gain, line)),
            f"End minus stop: {margin_cell(later_gain, 'it never fires').text} pp.",
        ),
        Finding(
            "stopping-saves-most",
            f"Stopping DFA there saves more than {_MOST:.0%} of the epochs.",
            unanimous(share > _MOST for share in shares) if len(shares) == len(dfa) else None,
            f"Saved by seed: {', '.join(f'{share:.0%}' for share in shares) or 'none'}.",
        ),
        Finding(
            "alarms-last",
            "A detector that fires under DFA keeps firing to the end.",
            all_true(answer for d in _DETECTORS for case in dfa if (answer := stays_on(case, d)) is not None),
            "Each detector, from its first epoch on.",
        ),
        Finding(
            "student-d2-never-fires",
            "Without any layer norm (StudentNet) D2 never fires under DFA, even at the papers' floor.",
            all(d2_never),
            f"D2 at epoch {_epochs(first_alarm(case, D2_PAPERS.is_raised) for case in student)}.",
        ),
    ]


def _is_before(left: int | None, right: int | None) -> bool | None:
    """Whether the left epoch is before the right one; None means never; the result is None where both are None."""
    if left is None:
        return None if right is None else False
    return right is None or left < right


def _figure(grid: _Grid, place: str, scale: Scale) -> Figure:
    methods = {name: found for (where, name), found in grid.items() if where == place}
    dfa = methods["DFA"]

    def plot(title: str, key: str, log: bool, levels: dict[str, float], detectors: Sequence[Detector]) -> Plot:
        series = tuple(over_epochs(name, found, lambda row: row.get(key)) for name, found in methods.items())
        marks = [(min(e), d.name) for d in detectors if (e := _alarm_epochs(dfa, d))]
        return Plot(title, "epoch", "", series, y_log=log, levels=levels, events=tuple(marks))

    cases = [case for found in methods.values() for case in found]
    words = caption(scale, cases, f"{BAND} Marks along x: the first epoch at which a detector fires under DFA.")
    plots = (
        plot(
            "‖g_L‖ @128",
            "grad_top",
            True,
            {
                f"D2 floor {short_power(T.g_norm_floor)}": T.g_norm_floor,
                f"papers' {short_power(PAPERS_FLOOR)}": PAPERS_FLOOR,
            },
            (D2, D2_PAPERS),
        ),
        plot("growth (D1)", "growth", True, {"D1 limit": T.h_norm_explosion_ratio}, (D1,)),
        plot("test accuracy", "test_acc", False, {}, ()),
    )
    firsts = {d.name: min(found, default=None) for d in (D1, D2) if (found := _alarm_epochs(dfa, d)) is not None}
    fires = [f"{name} after epoch {epoch}" for name, epoch in firsts.items() if epoch is not None]
    title = f"{NETWORKS[place].label}, first alarm under DFA: {listed(fires)}"
    return Figure(f"epochs_{place}", title, plots, words, columns=3)


def _alarm_epochs(cases: Sequence[Case], detector: Detector) -> list[int]:
    return [epoch for case in cases if (epoch := first_alarm(case, detector.is_raised)) is not None]


STUDY = TemporalReplay()
