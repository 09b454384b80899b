"""The size of the credit: does Mode 1 (D1 and D2 fail) need an error that does not shrink?

Papers: ours; P1 and P2 do not say whether DFA's error is normalised (methods.md, section 5)
Claim: DFA explodes where its credit does not shrink as samples are fitted, and not where it shrinks with the error
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.core.measurements import Measurements
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import listed
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    alarm,
    all_true,
    caption,
    first_alarm,
    is_mode_1,
    make_study_report,
    mean_cell,
    method_label,
    not_,
    range_cell,
    unanimous,
    verdict_cell,
    with_random_labels,
)

LABEL_ONLY = {"sdfa:site=input": "sDFA", "drtp:site=input": "DRTP"}
"""Rules whose credit depends only on the label and so never shrinks."""
CONSTANT_CREDIT = ("DFA", *LABEL_ONLY.values())
"""Rules whose credit has a constant size by construction."""
SHRUNK = 0.9
"""Below this share of its first size an error counts as shrunk."""
RANDOM_LABELS = "DFA raw, random labels"
_STYLES = {RANDOM_LABELS: "EP"}
"""A line style that no other rule of these figures has."""
Rules = Mapping[str, Sequence[Case]]


class CreditScale(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [*self.judged(scale), *scale.runs(list(RAW), data=with_random_labels(scale.places["resmlp"].data))]

    def judged(self, scale: Scale) -> list[RunConfig]:
        return scale.runs([METHODS["DFA"], *RAW, *LABEL_ONLY])

    def epochs_to_measure(self, scale: Scale) -> list[tuple[RunConfig, Sequence[int]]]:
        return [(config, measured_epochs(scale)) for config in self.runs(scale)]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        rules: dict[str, list[Case]] = {}
        for case in cases:
            rules.setdefault(_name(case), []).append(case)
        epochs = measured_epochs(scale)
        ends = (
            f"‖e‖ and ‖a‖: means over test samples after epoch {epochs[0]} and after the last; ‖a‖ over the states "
            "between the blocks. Random labels: training labels permuted, so that no rule can learn to shrink the test "
            "error."
        )
        marks = "Growth (D1) and norms: smallest to largest seed. First epochs: of each seed; – where it never fails."
        return make_study_report(
            "credit-scale",
            "The size of the credit",
            "Does Mode 1 (D1 and D2 fail) need an error that does not shrink?",
            scale,
            cases,
            _findings(rules, epochs),
            tables=[
                _size_table(rules, epochs, caption(scale, cases, ends)),
                _mode_1_table(rules, caption(scale, cases, marks)),
            ],
            figures=[_figure(rules, epochs, caption(scale, cases, "Lines: means over seeds."))],
        )


def measured_epochs(scale: Scale) -> tuple[int, ...]:
    """The epochs after which networks are measured: 1, 2, 4, 8, ... and the last."""
    last = scale.epochs["full"]
    return tuple(sorted({2**power for power in range(last.bit_length()) if 2**power <= last} | {last}))


def _name(case: Case) -> str:
    if case.resolved.config.data.settings.get("shuffled"):
        return RANDOM_LABELS
    return LABEL_ONLY.get(case.method, method_label(case.method))


def _findings(rules: Rules, epochs: Sequence[int]) -> list[Finding]:
    modes = {name: is_mode_1(cases) for name, cases in rules.items()}
    words = {
        True: "fail in every seed",
        False: "do not both fail in any seed",
        None: "both fail in some seeds or unknown",
    }
    constant_modes = {name: modes[name] for name in CONSTANT_CREDIT}
    others_not_mode_1 = all_true(not_(found) for name, found in modes.items() if name not in CONSTANT_CREDIT)
    raw_ratios = [_ratio(case, epochs, _error) for case in rules["DFA raw"]]
    random_label_ratios = [_ratio(case, epochs, _error) for case in rules[RANDOM_LABELS]]
    return [
        Finding(
            "unit-error-mode-1",
            "DFA with an error of length 1 is in Mode 1.",
            modes["DFA"],
            f"D1 and D2: {words[modes['DFA']]}.",
        ),
        Finding(
            "raw-error-not-mode-1",
            "DFA with the raw error is not.",
            not_(modes["DFA raw"]),
            f"D1 and D2: {words[modes['DFA raw']]}.",
        ),
        Finding(
            "raw-error-shrinks",
            "Under raw DFA the error shrinks by a tenth or more while it trains.",
            unanimous(None if value is None else value < SHRUNK for value in raw_ratios),
            f"‖e‖ at the end is {range_cell(raw_ratios, '.2f').text} of that after epoch {epochs[0]}.",
        ),
        Finding(
            "mode-1-needs-constant-credit",
            "Only rules whose credit keeps its size are in Mode 1.",
            others_not_mode_1 if True in constant_modes.values() or others_not_mode_1 is False else None,
            "; ".join(f"{name} ({_by_construction(name)}): {words[found]}" for name, found in modes.items()) + ".",
        ),
        Finding(
            "constant-credit-suffices",
            "A credit that keeps its size is enough: every such rule is in Mode 1.",
            all_true(constant_modes.values()),
            "; ".join(f"{name}: {words[found]}" for name, found in constant_modes.items()) + ".",
        ),
        Finding(
            "constant-error-suffices",
            "An error that cannot shrink is enough: raw DFA is in Mode 1 on random labels.",
            modes[RANDOM_LABELS],
            f"D1 and D2: {words[modes[RANDOM_LABELS]]}; ‖e‖ at the end is "
            f"{range_cell(random_label_ratios, '.2f').text} of that after epoch {epochs[0]}.",
        ),
    ]


def _error(measurements: Measurements) -> float | None:
    """Mean ‖e‖ over samples."""
    found = measurements.get("error_norm")
    return None if found is None else float(found.mean())


def _credit(measurements: Measurements) -> float | None:
    """Mean ‖a_l‖ over samples and the states between the blocks."""
    found = measurements.get("credit_norm")
    return None if found is None else float(found[1:-1].mean())


def _ratio(case: Case, epochs: Sequence[int], metric: Callable[[Measurements], float | None]) -> float | None:
    first, last = (metric(case.measurements_after(epoch)) for epoch in (epochs[0], epochs[-1]))
    return None if not first or last is None else last / first


def _size_table(rules: Rules, epochs: Sequence[int], caption_text: str) -> Table:
    rows = []
    for name, cases in rules.items():
        ends = [
            mean_cell([_error(case.measurements_after(epoch)) for case in cases], ".3f")
            for epoch in (epochs[0], epochs[-1])
        ]
        losses = [mean_cell([case.log[place].get("loss") for case in cases], ".3f") for place in (0, -1)]
        share = range_cell([_ratio(case, epochs, _credit) for case in cases], ".2f")
        rows.append((Cell(name), Cell(_by_construction(name)), *ends, share, *losses))
    heads = (
        "rule", "credit", "‖e‖, first", "‖e‖, last", "‖a‖, last over first", "train loss, first", "train loss, last",
    )  # fmt: skip
    return Table("sizes", "Error and credit while training", heads, tuple(rows), caption_text)


def _by_construction(name: str) -> str:
    return "keeps its size" if name in CONSTANT_CREDIT else "follows the error"


def _mode_1_table(rules: Rules, caption_text: str) -> Table:
    rows = []
    for name, cases in rules.items():
        flags = [case.report.flags for case in cases]
        is_judged = name != RANDOM_LABELS
        rows.append(
            (
                Cell(name),
                mean_cell([case.accuracy for case in cases], ".3f"),
                range_cell([found["D1"].value for found in flags]),
                range_cell([case.report.quantities.top.hidden_norm.value for case in cases]),
                range_cell([found["D2"].value for found in flags]),
                *(Cell(_first_epochs(cases, check)) for check in ("D1", "D2")),
                *(verdict_cell(cases, edition) if is_judged else Cell("–") for edition in ("three", "four")),
            )
        )
    heads = (
        "rule",
        "accuracy",
        "growth (D1)",
        "‖h_L‖",
        "‖g_L‖ @128",
        "D1 from epoch",
        "D2 from epoch",
        "three",
        "four",
    )
    return Table("marks", "Mode 1 and verdicts", heads, tuple(rows), caption_text)


def _first_epochs(cases: Sequence[Case], check: str) -> str:
    found = [first_alarm(case, alarm(check, case.report.thresholds)) for case in cases]
    return ", ".join("–" if epoch is None else str(epoch) for epoch in found)


def _figure(rules: Rules, epochs: Sequence[int], caption_text: str) -> Figure:
    def logged(key: str) -> tuple[Series, ...]:
        found = []
        for name, cases in rules.items():
            rows = list(zip(*(case.log for case in cases), strict=True))
            values = [_mean_or_none([row.get(key) for row in each]) for each in rows]
            found.append(Series(name, [each[0]["epoch"] for each in rows], values, _STYLES.get(name, "")))
        return tuple(found)

    def measured(metric: Callable[[Measurements], float | None]) -> tuple[Series, ...]:
        found = []
        for name, cases in rules.items():
            values = [_mean_or_none([metric(case.measurements_after(epoch)) for case in cases]) for epoch in epochs]
            found.append(Series(name, epochs, values, _STYLES.get(name, ""), mark="both"))
        return tuple(found)

    t = next(iter(rules.values()))[0].report.thresholds
    plots = (
        Plot("Error", "epoch", "mean ‖e‖", measured(_error)),
        Plot("Credit", "epoch", "mean ‖a_l‖ between blocks", measured(_credit)),
        Plot(
            "Growth (D1)",
            "epoch",
            "largest ‖h_l+1‖ / ‖h_l‖",
            logged("growth"),
            y_log=True,
            levels={"D1 limit": t.h_norm_explosion_ratio},
        ),
        Plot(
            "Reference gradient",
            "epoch",
            "‖g_L‖ @128",
            logged("grad_top"),
            y_log=True,
            levels={"D2 floor": t.g_norm_floor},
        ),
    )
    in_mode_1 = listed([name for name, cases in rules.items() if is_mode_1(cases)])
    return Figure(
        "over-epochs", f"Growth and collapse together (Mode 1) in every seed: {in_mode_1}", plots, caption_text
    )


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


STUDY = CreditScale()
