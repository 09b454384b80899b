"""The measuring batch: does the verdict on one network depend on the batch its gradients were measured with?

Papers: none; ours. The papers' figures mix batches of 128 and of 1024 under one floor (P1 section 3, P2 section 3.1)
Claim: with the gradient of a batch's mean loss the same network passes or fails D2 by the batch; @128 it does not
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from walkback.core.configuration import RunConfig
from walkback.core.measurements import GROUP
from walkback.judge.editions import Outcome
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import CellGrid, Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.studies.cross_architecture import NETWORKS, by_name, runs_at
from walkback_papers.study import Study
from walkback_papers.tables import caption, make_study_report, range_cell

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PAPERS = (128, 1024)
"""The two batches that the papers' figures are in."""
_EDITIONS = ("three", "four")
Verdicts = dict[str, tuple[Outcome, ...]]
"""By edition, one for each batch."""
_HEADS = ("case", "‖g_L‖ @128", "D2 here", "D2 flips at batch", "D2 by batch", "verdicts, three", "verdicts, four")


class BatchSize(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [
            *_audit(scale),
            *(config for place in NETWORKS if place != "resmlp" for config in runs_at(place, scale)),
        ]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found = by_name(results, _audit(scale))
        for place in NETWORKS:
            if place != "resmlp":
                named = by_name(results, runs_at(place, scale))
                found |= {f"{name}, {NETWORKS[place].words}": cases for name, cases in named.items()}
        cases = [case for each in found.values() for case in each]
        note = (
            f"From stored per-sample norms. Old convention: mean per-sample norm divided by the batch, against 1e-7; "
            f"batches of {BATCH_SIZES[0]} to {BATCH_SIZES[-1]}. Here: @128, always. ViT: {scale.epochs['vit']} epochs."
        )
        told = caption(scale, cases, note)
        judged = {name: [verdicts(case) for case in each] for name, each in found.items()}
        rows = tuple(_row(name, each, judged[name]) for name, each in found.items())
        table = Table("batches", "One network, many batches", _HEADS, rows, told, _NOTES)
        return make_study_report(
            "batch-size",
            "The measuring batch",
            "Does the verdict on one network depend on the batch its gradients were measured with?",
            scale,
            cases,
            _findings(found, judged),
            tables=[table],
            figures=_figures(found, told),
        )


_NOTES = (
    "D2 by batch: how many batch sizes raise it, of all. Verdicts: from the smallest batch to the largest; by seed "
    "where seeds differ.",
    "D2 flips at batch: above it the old convention calls the reference invalid; smallest to largest seed.",
)


def _audit(scale: Scale) -> list[RunConfig]:
    return scale.runs([*METHODS.values(), *RAW])


def norm_in(case: Case, batch: int) -> float | None:
    """The size of the gradient of a batch's mean loss at h_L: what a script with that batch prints."""
    raw = case.report.quantities.top.grad_norm_raw
    return raw.known / batch if raw.ok else None


def below(case: Case, batch: int) -> bool | None:
    """Whether the old convention raises D2."""
    norm = norm_in(case, batch)
    return None if norm is None else norm < case.report.thresholds.g_norm_floor


def edge(case: Case) -> float | None:
    """The batch above which the old convention raises D2."""
    norm = norm_in(case, 1)
    return None if norm is None else norm / case.report.thresholds.g_norm_floor


def verdicts(case: Case) -> Verdicts:
    """What each edition concludes at each batch: a floor on a batch's gradient is another floor @128."""
    t = case.report.thresholds
    floors = [t.g_norm_floor * batch / GROUP for batch in BATCH_SIZES]
    reports = [case.report.rejudge(replace(t, g_norm_floor=floor)) for floor in floors]
    return {edition: tuple(report.verdicts[edition].outcome for report in reports) for edition in _EDITIONS}


def changes(case: Case, batches: Sequence[int] = BATCH_SIZES) -> bool | None:
    """Whether D2 is not the same at all of these batches."""
    answers = {below(case, batch) for batch in batches}
    return None if None in answers else len(answers) > 1


def _row(name: str, cases: Sequence[Case], judged: Sequence[Verdicts]) -> tuple[Cell, ...]:
    ours = [case.report.flags["D2"] for case in cases]
    raised = [sum(below(case, batch) is True for batch in BATCH_SIZES) for case in cases]
    return (
        Cell(name),
        range_cell([flag.value for flag in ours]),
        Cell(" / ".join(dict.fromkeys(flag.shown for flag in ours))),
        range_cell([edge(case) for case in cases], ".3g"),
        Cell(" / ".join(dict.fromkeys(f"{count} of {len(BATCH_SIZES)}" for count in raised))),
        *(Cell(_along(judged, edition)) for edition in _EDITIONS),
    )


def _along(judged: Sequence[Verdicts], edition: str) -> str:
    """The verdicts of a seed along the batches; those of seeds that differ beside each other."""
    along = [" → ".join(dict.fromkeys(verdicts[edition])) for verdicts in judged]
    return " / ".join(dict.fromkeys(along)).replace("_", " ")


def _findings(found: Mapping[str, Sequence[Case]], judged: Mapping[str, Sequence[Verdicts]]) -> list[Finding]:
    each = [(f"{name} s{case.seed}", case) for name, cases in found.items() for case in cases]

    def of(title: str, answers: Mapping[str, bool | None]) -> Finding:
        """Holds where one network shows it; only a look at all of them can say that none does."""
        shown = [name for name, answer in answers.items() if answer]
        unknown = [name for name, answer in answers.items() if answer is None]
        holds = True if shown else None if unknown else False
        more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
        return Finding(title, holds, f"{len(shown)} of {len(answers)}: {', '.join(shown[:6]) or 'none'}{more}.")

    flips = {name: changes(case) for name, case in each}
    papers = {name: changes(case, PAPERS) for name, case in each}
    every = [verdicts for name in found for verdicts in judged[name]]
    moved = {
        name: any(len(set(along)) > 1 for along in verdicts.values())
        for (name, _), verdicts in zip(each, every, strict=True)
    }
    return [
        of(
            f"By the old convention D2 of one network flips between batches of {BATCH_SIZES[0]} and {BATCH_SIZES[-1]}.",
            flips,
        ),
        of("It flips between the papers' own batches, 128 and 1024.", papers),
        of("A verdict flips with it.", moved),
    ]


def _figures(found: Mapping[str, Sequence[Case]], words: str) -> list[Figure]:
    """Norms and flags of the primary audit's network; flags of the others, two networks at a time."""

    def series(name: str) -> Series:
        means = []
        for batch in BATCH_SIZES:
            norms = [norm_in(case, batch) for case in found[name]]
            known = [norm for norm in norms if norm is not None]
            means.append(sum(known) / len(known) if known else None)
        return Series(name, BATCH_SIZES, means, style=name, mark="both")

    def grid(title: str, names: Sequence[str]) -> CellGrid:
        cells = tuple(tuple(_word(found[name], batch) for batch in BATCH_SIZES) for name in names)
        return CellGrid(title, tuple(map(str, BATCH_SIZES)), tuple(names), cells)

    audit = [name for name in found if "," not in name]
    others = [name for name in found if "," in name]
    half = len(others) // 2
    norms = Plot(
        "Gradient norm by batch",
        "measuring batch",
        "mean ‖g_L[i]‖ / batch",
        tuple(series(name) for name in audit),
        x_log=True,
        y_log=True,
        levels={"floor": DiagnosticThresholds().g_norm_floor},
    )
    said = f"D2 by the old convention: raised in at least one seed, or clear in all. {words}"
    return [
        Figure("audit", "The old convention, primary audit", (norms, grid("D2 by batch", audit)), said),
        Figure(
            "others", "The old convention, other networks", (grid("", others[:half]), grid("", others[half:])), said
        ),
    ]


def _word(cases: Sequence[Case], batch: int) -> str:
    answers = [below(case, batch) for case in cases]
    return "raised" if True in answers else "open" if None in answers else "clear"


STUDY = BatchSize()
