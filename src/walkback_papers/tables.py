"""What studies share in telling their results: cells over seeds, captions, detectors' first epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from walkback.core.settings import Spec, changed_settings
from walkback.judge import detector_alarms
from walkback.judge.audit_table import worst_outcome
from walkback.judge.claims import Claim, alignment_of_seeds
from walkback.judge.number import Number
from walkback.judge.report import DiagnosticReport
from walkback.judge.statistics import Margin, mean_interval, paired_margin
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Finding, StudyReport
from walkback.training.resolved_run import ResolvedRun
from walkback_papers.results import Case
from walkback_papers.scale import METHODS, RAW, Scale

PAPERS_FLOOR = detector_alarms.PAPERS_FACTOR * DiagnosticThresholds.g_norm_floor
"""The papers' floor of 1e-7 where they measured with batches of 1024, @128."""


def method_label(method: str) -> str:
    """The name that tables and figures show for a method as its run writes it."""
    names = {text: name for name, text in METHODS.items()}
    return names.get(method, RAW.get(method, method))


def mean_cell(values: Sequence[float | None], spec: str, reason: str = "") -> Cell:
    """Mean ± standard deviation (ddof = 1); one value alone; a word where one is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell("NOT MEASURED", None, reason or f"{len(values) - len(known)} of {len(values)} seeds have no value")
    if len(known) == 1:
        return Cell(format(known[0], spec), known[0], reason)
    return Cell(f"{fmean(known):{spec}} ± {stdev(known):{spec.replace('+', '')}}", fmean(known), reason)


def range_cell(values: Sequence[float | None], spec: str = ".2g") -> Cell:
    """From the smallest to the largest: for numbers that differ by factors, where a standard deviation says little."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell("NOT MEASURED", None, f"{len(values) - len(known)} of {len(values)} seeds have no value")
    ends = list(dict.fromkeys(format(value, spec) for value in (min(known), max(known))))
    return Cell(" to ".join(ends), fmean(known))


def numbers_cell(cases: Iterable[Case], get: Callable[[Case], Number], spec: str) -> Cell:
    """A judged number over seeds; INVALID or NOT MEASURED with its reason where it is so in one of them."""
    found = [get(case) for case in cases]
    bad = [number for number in found if not number.ok]
    if bad:
        return Cell(bad[0].word, None, bad[0].reason)
    return mean_cell([number.known for number in found], spec, found[0].reason)


def verdict_cell(cases: Sequence[Case], edition: str) -> Cell:
    """The worst of the seeds' verdicts, by which flags, and in how many."""
    return verdict_cell_of_reports([case.report for case in cases], edition)


def verdict_cell_of_reports(reports: Sequence[DiagnosticReport], edition: str) -> Cell:
    """The same of reports, as they come out under another null or other thresholds."""
    outcomes = [report.verdicts[edition] for report in reports]
    outcome = worst_outcome([found.outcome for found in outcomes])
    alike = [found for found in outcomes if found.outcome == outcome]
    flags = dict.fromkeys(flag for found in alike for flag in found.decided_by)
    by = f" ({', '.join(flags)})" if flags else ""
    share = "" if len(alike) == len(reports) else f" in {len(alike)} of {len(reports)}"
    return Cell(f"{outcome.replace('_', ' ')}{by}{share}")


def is_mode_1(cases: Sequence[Case]) -> bool | None:
    """Whether D1 and D2 are both raised: in every seed, in none, or neither can be said (None)."""
    return unanimous(all_true(case.report.flags[check].truth for check in ("D1", "D2")) for case in cases)


def unanimous(answers: Iterable[bool | None]) -> bool | None:
    """What all answers say; None where they differ, where one is unknown, or where there is none."""
    found = set(answers)
    return found.pop() if len(found) == 1 else None


def passes_cell(cases: Sequence[Case], check: str) -> Cell:
    """Whether a check passes, in a word; a reason where it cannot be said."""
    flags = [case.report.flags[check] for case in cases]
    unknown = [flag for flag in flags if flag.truth is None]
    if unknown:
        return Cell(unknown[0].shown, None, unknown[0].reason)
    bad = sum(flag.truth is True for flag in flags)
    if 0 < bad < len(flags):
        return Cell(f"no in {bad} of {len(flags)}")
    return Cell("no" if bad else "yes")


def all_true(answers: Iterable[bool | None]) -> bool | None:
    """And, where None is unknown: one False settles it; None where there is no answer at all."""
    found = list(answers)
    if False in found:
        return False
    return None if None in found or not found else True


def combined_finding(claim: str, answers: Mapping[str, bool | None]) -> Finding:
    """A claim that is made of several; what speaks against it and what is open is named."""
    against = [name for name, answer in answers.items() if answer is False]
    unsure = [name for name, answer in answers.items() if answer is None]
    said = [f"{sum(answer is True for answer in answers.values())} of {len(answers)} bear it out"]
    said += [f"against it: {', '.join(against)}"] if against else []
    said += [f"open (seeds differ, an interval is too wide, or no value): {', '.join(unsure)}"] if unsure else []
    return Finding(claim, all_true(answers.values()), f"{'; '.join(said)}.")


def seed_interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """95% t interval of a mean over seeds; None where a value is missing or there is only one."""
    known = [value for value in values if value is not None]
    return mean_interval(np.array(known)) if len(known) == len(values) else None


def side_of_line(interval: tuple[float, float] | None, line: float) -> bool | None:
    """Whether an interval lies above a line or below it; None where the line is inside, or there is no interval."""
    if interval is None:
        return None
    low, high = interval
    return True if low > line else False if high < line else None


def with_penalty(method: str, penalty: float) -> str:
    """A method as it is written, with a residual penalty."""
    return f"{method}{',' if ':' in method else ':'}penalty={penalty:g}" if penalty else method


def with_random_labels(data: str) -> str:
    """A data set as it is written, its training labels dealt anew."""
    return f"{data}{',' if ':' in data else ':'}shuffled=true"


def penalty_of(case: Case) -> float:
    return case.resolved.shared_options.penalty


def method_label_of(case: Case) -> str:
    """The name of a case's method whatever its penalty."""
    written = Spec.parse(case.method)
    kept = {name: value for name, value in written.settings.items() if name != "penalty"}
    return method_label(str(Spec(written.name, kept)))


def accuracy_gain(ours: Sequence[Case], theirs: Sequence[Case]) -> Margin:
    """Difference of two accuracies in percentage points, paired by seed."""
    mine, other = ({case.seed: case.accuracy for case in cases} for cases in (ours, theirs))
    common = sorted(mine.keys() & other.keys())
    return paired_margin([mine[seed] for seed in common], [other[seed] for seed in common])


def is_above(margin: Margin | None, line: float = 0.0) -> bool | None:
    """Whether a difference is above a line, as far as its interval can tell."""
    return side_of_line(None if margin is None else margin.interval, line)


def margin_cell(margin: Margin | None, reason: str = "") -> Cell:
    """A difference in percentage points with its 95% interval."""
    if margin is None:
        return Cell("NOT MEASURED", None, reason or "one of the two accuracies is not there")
    ends = "" if margin.interval is None else f" [{margin.interval[0]:+.1f}, {margin.interval[1]:+.1f}]"
    return Cell(f"{margin.mean:+.1f}{ends}", margin.mean)


def claim_over_seeds(cases: Sequence[Case], name: str) -> Claim:
    """A claim over the seeds: alignment must stand in each; depth is over all of them on every card."""
    found = [case.report.claims[name] for case in cases]
    return alignment_of_seeds(found) if name == "alignment" else found[0]


def depth_fails(cases: Sequence[Case]) -> bool | None:
    """Whether trained blocks fail to beat their frozen ones: the interval of the margin tells, or it does not."""
    return {"walked_back": True, "stands": False}.get(claim_over_seeds(cases, "depth").outcome)


def check_fails(cases: Sequence[Case], check: str) -> bool | None:
    """Whether a check is raised: in every seed, in none, or neither can be said (None)."""
    return unanimous(case.report.flags[check].truth for case in cases)


def check_values(cases: Sequence[Case], check: str) -> str:
    """A check's values by seed, and its threshold, in words."""
    flags = [case.report.flags[check] for case in cases]
    shown = ", ".join(flag.shown if flag.value is None else f"{flag.value:.2g}" for flag in flags)
    return f"{check} by seed: {shown}; threshold {flags[0].threshold:g}."


def check_cell(cases: Sequence[Case], check: str) -> Cell:
    """A check's outcome in a word: raised (in how many seeds) or clear; a reason where it cannot be said."""
    flags = [case.report.flags[check] for case in cases]
    unknown = [flag for flag in flags if flag.truth is None]
    if unknown:
        return Cell(unknown[0].shown, None, unknown[0].reason)
    count = sum(flag.truth is True for flag in flags)
    return Cell("clear" if not count else "raised" if count == len(flags) else f"raised in {count} of {len(flags)}")


def outside_null(cases: Sequence[Case], get: Callable[[Case], Number]) -> bool | None:
    """Whether a score lies outside its null: in every seed, in none, or neither can be said (None)."""
    scores = [(get(case), case.report.thresholds.null_z) for case in cases]
    return unanimous(z.known >= line if z.ok else None for z, line in scores)


def is_within(interval: tuple[float, float] | None, line: float) -> bool | None:
    """Whether a value is smaller than `line` either way, as far as its interval tells; None where it does not."""
    if interval is None:
        return None
    low, high = interval
    return True if -line < low and high < line else False if low >= line or high <= -line else None


def not_(answer: bool | None) -> bool | None:
    """Not, where None is unknown."""
    return None if answer is None else not answer


def first_alarm(case: Case, is_raised: Callable[[Mapping[str, Any]], bool]) -> int | None:
    """The first epoch whose row of the log raises a detector; None where none does."""
    return detector_alarms.first_alarm_epoch(case.log, is_raised)


def alarm(check: str, t: DiagnosticThresholds, floor: float | None = None) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a row of the log raises D1 or D2 (at another floor, where one is given)."""
    return detector_alarms.alarm_of(check, t, floor)


def caption(scale: Scale, cases: Sequence[Case], extra: str = "") -> str:
    """n, ddof, data and recipe: what every caption states."""
    configs = [case.resolved.config for case in cases]
    seeds = sorted({config.seed for config in configs})
    places = list(dict.fromkeys(_place(case.resolved) for case in cases))
    first = configs[0]
    resolved = f"{_epochs(cases)}, batch {first.batch}, AdamW lr {first.lr:g}, decay {first.weight_decay:g}, cosine"
    augment = f", {first.augment}" if first.augment != "none" else ""
    where = "; ".join(places) if len(places) <= 2 else f"{len(places)} networks"
    n = f"n = {len(seeds)} seeds ({', '.join(map(str, seeds))}); ± is the standard deviation over seeds, ddof = 1"
    return " ".join(filter(None, (f"{where}, {resolved}{augment}; {n}. Scale: {scale.name}.", extra)))


def _epochs(cases: Sequence[Case]) -> str:
    """How long they were trained; where that depends on the method, which one for how long."""
    by: dict[int, list[str]] = {}
    for case in cases:
        by.setdefault(case.resolved.config.epochs, []).append(method_label(case.method))
    most = max(by, key=lambda epochs: len(by[epochs]))
    others = {epochs: dict.fromkeys(names) for epochs, names in by.items() if epochs != most}
    if any(name in by[most] for names in others.values() for name in names):
        return f"{' or '.join(map(str, by))} epochs"
    said = "; ".join(f"{', '.join(names)}: {epochs}" for epochs, names in others.items())
    return f"{most} epochs ({said})" if said else f"{most} epochs"


def _place(resolved: ResolvedRun) -> str:
    """Network and data, with the settings that differ from their defaults."""
    sizes = {
        name: value for name, value in changed_settings(resolved.net).items() if name not in ("input_shape", "classes")
    }
    data = Spec(resolved.config.data.name, changed_settings(resolved.source))
    return f"{Spec(resolved.config.arch.name, sizes)} on {data}"


def make_study_report(
    name: str,
    title: str,
    question: str,
    scale: Scale,
    cases: Sequence[Case],
    findings: Sequence[Finding],
    **parts: Sequence[object],
) -> StudyReport:
    """A story with its facts, runs and command filled in; `parts` are tables and figures."""
    # All it may look at, baselines too: the shells behind a margin are no cases.
    runs = tuple(cases[0].results.run_index.names())
    facts = (f"Scale {scale.name}: {scale.words}.", f"{len(runs)} runs, with those that others are held against.")
    line = f"walkback study {name} --scale {scale.name}"
    commands = (
        f"{line} --out again  # trains its runs anew, measures and tells",
        f"{line} --out .. --render  # in this page's folder: tells again from the numbers in ../runs",
    )
    tables, figures = (tuple(parts.get(kind, ())) for kind in ("tables", "figures"))
    return StudyReport(name, title, question, tuple(findings), tables, figures, facts, runs, commands)  # type: ignore[arg-type]
