"""Shared by the studies' reports: table cells over seeds, findings, captions, detectors' first epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from walkback.core.settings import Spec, changed_settings
from walkback.judge import detector_alarms
from walkback.judge.alignment_claim import alignment_of_seeds
from walkback.judge.audit_table import worst_outcome
from walkback.judge.claim import Claim
from walkback.judge.depth_claim import depth_of_seeds
from walkback.judge.number import Number, first_bad
from walkback.judge.quantities import Quantities
from walkback.judge.report import DiagnosticReport
from walkback.judge.statistics import Margin, mean_interval, paired_margin
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, StudyReport, Table
from walkback.training.resolved_run import ResolvedRun
from walkback_papers.figure_notes import with_checks_explained
from walkback_papers.results import Case
from walkback_papers.scale import EXACT_AT_INPUT, METHODS, RAW, Scale

PAPERS_FLOOR = detector_alarms.PAPERS_FACTOR * DiagnosticThresholds.g_norm_floor
"""The papers' floor of 1e-7 at batch 1024, converted to batch 128."""


def method_label(method: str) -> str:
    """The name that tables and figures show for a method, given as in its run configuration."""
    names = {text: name for name, text in METHODS.items()} | RAW | EXACT_AT_INPUT
    return names.get(method, method)


def kebab(name: str) -> str:
    """A shown name as part of an id or file name: `State Bridge` gives `state-bridge`."""
    return name.lower().replace(" ", "-")


def mean_cell(values: Sequence[float | None], spec: str, reason: str = "") -> Cell:
    """Mean ± standard deviation (ddof = 1), or the value where there is one seed; NOT MEASURED where one is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell("NOT MEASURED", None, reason or f"{len(values) - len(known)} of {len(values)} seeds have no value")
    if len(known) == 1:
        return Cell(format(known[0], spec), known[0], reason)
    return Cell(f"{fmean(known):{spec}} ± {stdev(known):{spec.replace('+', '')}}", fmean(known), reason)


def range_cell(values: Sequence[float | None], spec: str = ".2g") -> Cell:
    """Smallest to largest: for numbers that differ by factors, where a standard deviation is uninformative."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell("NOT MEASURED", None, f"{len(values) - len(known)} of {len(values)} seeds have no value")
    ends = list(dict.fromkeys(format(value, spec) for value in (min(known), max(known))))
    return Cell(" to ".join(ends), fmean(known))


def numbers_cell(cases: Iterable[Case], get: Callable[[Case], Number], spec: str) -> Cell:
    """A judged number over seeds; INVALID or NOT MEASURED, with the reason, where one seed has no usable value."""
    found = [get(case) for case in cases]
    bad = [number for number in found if not number.ok]
    if bad:
        return Cell(bad[0].word, None, bad[0].reason)
    return mean_cell([number.known for number in found], spec, found[0].reason)


def verdict_cell(cases: Sequence[Case], edition: str) -> Cell:
    """The worst verdict of the seeds, the checks that decided it, and in how many seeds."""
    return verdict_cell_of_reports([case.report for case in cases], edition)


def verdict_cell_of_reports(reports: Sequence[DiagnosticReport], edition: str) -> Cell:
    """`verdict_cell` for reports, such as those judged with another null or other thresholds."""
    outcomes = [report.verdicts[edition] for report in reports]
    outcome = worst_outcome([found.outcome for found in outcomes])
    same = [found for found in outcomes if found.outcome == outcome]
    checks = dict.fromkeys(check for found in same for check in found.decided_by)
    by = f" ({', '.join(checks)})" if checks else ""
    share = "" if len(same) == len(reports) else f" in {len(same)} of {len(reports)}"
    return Cell(f"{outcome.replace('_', ' ')}{by}{share}")


def is_mode_1(cases: Sequence[Case]) -> bool | None:
    """Whether D1 and D2 both fail: True in every seed, False in none, None if seeds differ or are unknown."""
    return unanimous(all_true(case.report.flags[check].truth for check in ("D1", "D2")) for case in cases)


def unanimous(answers: Iterable[bool | None]) -> bool | None:
    """The answer all share; None where they differ, where one is unknown, or where there is none."""
    found = set(answers)
    return found.pop() if len(found) == 1 else None


def passes_cell(cases: Sequence[Case], check: str) -> Cell:
    """Whether a check passes: yes, no, or no in how many seeds; where it is unknown, the reason."""
    flags = [case.report.flags[check] for case in cases]
    unknown = [flag for flag in flags if flag.truth is None]
    if unknown:
        return Cell(unknown[0].shown, None, unknown[0].reason)
    bad = sum(flag.truth is True for flag in flags)
    if 0 < bad < len(flags):
        return Cell(f"no in {bad} of {len(flags)}")
    return Cell("no" if bad else "yes")


def mean_without_exact(q: Quantities) -> Number:
    """The published mean cosine, l = 1..L, without layers that are exact by construction."""
    kept = [layer.credit.cos for layer in q.layers[1:] if layer.credit is not None and layer.credit.label != "exact"]
    if not kept:
        return Number.missing("no credit was measured, or every layer is exact by construction")
    return first_bad(kept) or Number.of(fmean(number.known for number in kept))


def all_true(answers: Iterable[bool | None]) -> bool | None:
    """Three-valued AND, None meaning unknown: one False gives False; no answers at all give None."""
    found = list(answers)
    if False in found:
        return False
    return None if None in found or not found else True


def combined_finding(finding_id: str, claim: str, answers: Mapping[str, bool | None]) -> Finding:
    """A claim that holds if all of several answers do; the contradicting and the undecided ones are listed."""
    against = [name for name, answer in answers.items() if answer is False]
    undecided = [name for name, answer in answers.items() if answer is None]
    details = [f"{sum(answer is True for answer in answers.values())} of {len(answers)} support it"]
    details += [f"against it: {', '.join(against)}"] if against else []
    if undecided:
        details.append(f"undecided (seeds differ, an interval is too wide, or no value): {', '.join(undecided)}")
    return Finding(finding_id, claim, all_true(answers.values()), f"{'; '.join(details)}.")


def seed_interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """95% t interval of the mean over seeds; None where a value is missing or there is only one seed."""
    known = [value for value in values if value is not None]
    return mean_interval(np.array(known)) if len(known) == len(values) else None


def side_of_line(interval: tuple[float, float] | None, line: float) -> bool | None:
    """True if an interval is above a line, False if below; None where it contains the line or there is none."""
    if interval is None:
        return None
    low, high = interval
    return True if low > line else False if high < line else None


def with_penalty(method: str, penalty: float) -> str:
    """A method's text with a residual penalty added."""
    return f"{method}{',' if ':' in method else ':'}penalty={penalty:g}" if penalty else method


def with_random_labels(data: str) -> str:
    """A data set's text with its training labels shuffled."""
    return f"{data}{',' if ':' in data else ':'}shuffled=true"


def penalty_of(case: Case) -> float:
    return case.resolved.shared_options.penalty


def method_label_of(case: Case) -> str:
    """The shown name of a case's method, ignoring its penalty."""
    written = Spec.parse(case.method)
    kept = {name: value for name, value in written.settings.items() if name != "penalty"}
    return method_label(str(Spec(written.name, kept)))


def accuracy_gain(ours: Sequence[Case], theirs: Sequence[Case]) -> Margin:
    """Accuracy of `ours` minus that of `theirs` in percentage points, paired by seed."""
    our_accuracy, their_accuracy = ({case.seed: case.accuracy for case in cases} for cases in (ours, theirs))
    seeds = sorted(our_accuracy.keys() & their_accuracy.keys())
    return paired_margin([our_accuracy[seed] for seed in seeds], [their_accuracy[seed] for seed in seeds])


def is_above(margin: Margin | None, line: float = 0.0) -> bool | None:
    """Whether a difference is above a line; None where its interval contains the line or there is none."""
    return side_of_line(None if margin is None else margin.interval, line)


def margin_cell(margin: Margin | None, reason: str = "") -> Cell:
    """A difference in percentage points with its 95% interval."""
    if margin is None:
        return Cell("NOT MEASURED", None, reason or "one of the two accuracies is missing")
    ends = "" if margin.interval is None else f" [{margin.interval[0]:+.1f}, {margin.interval[1]:+.1f}]"
    return Cell(f"{margin.mean:+.1f}{ends}", margin.mean)


def claim_over_seeds(cases: Sequence[Case], name: str) -> Claim:
    """A claim over seeds, from the card of each."""
    found = [case.report.claims[name] for case in cases]
    return alignment_of_seeds(found) if name == "alignment" else depth_of_seeds(found)


def depth_fails(cases: Sequence[Case]) -> bool | None:
    """Whether trained blocks do not beat frozen ones; None where the margin's interval does not decide it."""
    return {"walked_back": True, "stands": False}.get(claim_over_seeds(cases, "depth").outcome)


def check_fails(cases: Sequence[Case], check: str) -> bool | None:
    """Whether a check fails: True in every seed, False in none, None if seeds differ or are unknown."""
    return unanimous(case.report.flags[check].truth for case in cases)


def check_values(cases: Sequence[Case], check: str) -> str:
    """A sentence with a check's value in each seed and its threshold."""
    flags = [case.report.flags[check] for case in cases]
    shown = ", ".join(flag.shown if flag.value is None else f"{flag.value:.2g}" for flag in flags)
    return f"{check} by seed: {shown}; threshold {flags[0].threshold:g}."


def check_cell(cases: Sequence[Case], check: str) -> Cell:
    """A check's outcome: passes, fails, or fails in how many seeds; where it is unknown, the reason."""
    flags = [case.report.flags[check] for case in cases]
    unknown = [flag for flag in flags if flag.truth is None]
    if unknown:
        return Cell(unknown[0].shown, None, unknown[0].reason)
    count = sum(flag.truth is True for flag in flags)
    return Cell("passes" if not count else "fails" if count == len(flags) else f"fails in {count} of {len(flags)}")


def outside_null(cases: Sequence[Case], get: Callable[[Case], Number]) -> bool | None:
    """Whether a z score is outside its null: True in every seed, False in none, None if seeds differ or are unknown."""
    scores = [(get(case), case.report.thresholds.null_z) for case in cases]
    return unanimous(z.known >= line if z.ok else None for z, line in scores)


def is_within(interval: tuple[float, float] | None, line: float) -> bool | None:
    """Whether an absolute value is below `line`; None where its interval does not decide it."""
    if interval is None:
        return None
    low, high = interval
    return True if -line < low and high < line else False if low >= line or high <= -line else None


def not_(answer: bool | None) -> bool | None:
    """Three-valued NOT: None (unknown) stays None."""
    return None if answer is None else not answer


def first_alarm(case: Case, fails: Callable[[Mapping[str, Any]], bool]) -> int | None:
    """The first epoch whose log row sets off a detector; None if there is none."""
    return detector_alarms.first_alarm_epoch(case.log, fails)


def alarm(check: str, t: DiagnosticThresholds, floor: float | None = None) -> Callable[[Mapping[str, Any]], bool]:
    """A test for log rows: does D1 or D2 fail there? `floor` replaces the floor of D2."""
    return detector_alarms.alarm_of(check, t, floor)


def caption(scale: Scale, cases: Sequence[Case], extra: str = "") -> str:
    """What every caption states: network, data, training settings, n and ddof; then `extra`."""
    configs = [case.resolved.config for case in cases]
    seeds = sorted({config.seed for config in configs})
    places = list(dict.fromkeys(place_text(case.resolved) for case in cases))
    first = configs[0]
    settings = f"{_epochs(cases)}, batch {first.batch}, AdamW lr {first.lr:g}, decay {first.weight_decay:g}, cosine"
    augment = f", {first.augment}" if first.augment != "none" else ""
    where = "; ".join(places) if len(places) <= 2 else f"{len(places)} networks"
    n = f"n = {len(seeds)} seeds ({', '.join(map(str, seeds))}); ± is the standard deviation over seeds, ddof = 1"
    return " ".join(filter(None, (f"{where}, {settings}{augment}; {n}. Scale: {scale.name}.", extra)))


def _epochs(cases: Sequence[Case]) -> str:
    """The number of epochs; where it depends on the method, the exceptions by method."""
    methods: dict[int, list[str]] = {}
    for case in cases:
        methods.setdefault(case.resolved.config.epochs, []).append(method_label(case.method))
    most = max(methods, key=lambda epochs: len(methods[epochs]))
    others = {epochs: dict.fromkeys(names) for epochs, names in methods.items() if epochs != most}
    if any(name in methods[most] for names in others.values() for name in names):
        return f"{' or '.join(map(str, methods))} epochs"
    exceptions = "; ".join(f"{', '.join(names)}: {epochs}" for epochs, names in others.items())
    return f"{most} epochs ({exceptions})" if exceptions else f"{most} epochs"


def place_text(resolved: ResolvedRun) -> str:
    """Network and data set, with the settings that differ from their defaults."""
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
    tables: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
) -> StudyReport:
    """A study report with its facts, runs and commands filled in, and with the checks' codes in figures explained."""
    # All runs of the study, baselines included: the frozen baselines behind a margin are not in `cases`.
    runs = tuple(cases[0].results.run_index.names()) if cases else ()
    facts = (f"Scale {scale.name}: {scale.words}.", *([f"{len(runs)} runs, baselines included."] if runs else []))
    command = f"walkback study {name} --scale {scale.name}"
    commands = (
        f"{command} --out again  # trains and measures its runs again and writes the pages",
        f"{command} --out .. --render  # in this page's folder: writes the pages again from the numbers in ../runs",
    )
    shown = tuple(map(with_checks_explained, figures))
    return StudyReport(name, title, question, tuple(findings), tuple(tables), shown, facts, runs, commands)
