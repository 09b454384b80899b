"""The measuring batch: does the verdict on one network depend on the batch size used to measure its gradients?

Papers: none; ours. The papers' figures mix batches of 128 and of 1024 under one floor (P1 section 3, P2 section 3.1)
Claim: with the gradient of a batch's mean loss, whether D2 fails depends on the batch size; @128 it does not
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
from walkback_papers.plots import in_same_range, listed
from walkback_papers.results import Case, Results
from walkback_papers.scale import AUDITED_METHODS, Scale
from walkback_papers.studies.cross_architecture import NETWORKS, by_name, runs_at
from walkback_papers.study import Study
from walkback_papers.tables import caption, check_cell, make_study_report, range_cell

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PAPERS = (128, 1024)
"""The two batch sizes of the papers' figures."""
_EDITIONS = ("three", "four")
Verdicts = dict[str, tuple[Outcome, ...]]
"""By edition, one verdict for each batch size."""
_HEADS = ("case", "‖g_L‖ @128", "D2 @128", "D2 flips at batch", "D2 by batch", "verdicts, three", "verdicts, four")


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
                found |= {f"{name}, {NETWORKS[place].label}": cases for name, cases in named.items()}
        cases = [case for each in found.values() for case in each]
        note = (
            f"From stored per-sample norms. Old convention: mean per-sample norm divided by the batch, against 1e-7; "
            f"batches of {BATCH_SIZES[0]} to {BATCH_SIZES[-1]}. "
            f"@128: as walkback measures. ViT: {scale.epochs['vit']} epochs."
        )
        table_caption = caption(scale, cases, note)
        judged = {name: [verdicts(case) for case in each] for name, each in found.items()}
        rows = tuple(_row(name, each, judged[name]) for name, each in found.items())
        table = Table("batches", "D2 and verdicts by measuring batch", _HEADS, rows, table_caption, _NOTES)
        return make_study_report(
            "batch-size",
            "The measuring batch",
            "Does the verdict on one network depend on the batch size used to measure its gradients?",
            scale,
            cases,
            _findings(found, judged),
            tables=[table],
            figures=_figures(found, table_caption),
        )


_NOTES = (
    "D2 by batch: at how many of the batch sizes it fails. Verdicts: from the smallest batch to the largest; by seed "
    "where seeds differ.",
    "D2 flips at batch: above it the old convention calls the reference invalid; smallest to largest seed.",
)


def _audit(scale: Scale) -> list[RunConfig]:
    return scale.runs(AUDITED_METHODS)


def norm_in(case: Case, batch: int) -> float | None:
    """Norm of the gradient of a batch's mean loss at h_L, as a script with that batch size would print it."""
    raw = case.report.quantities.top.grad_norm_raw
    return raw.known / batch if raw.ok else None


def below(case: Case, batch: int) -> bool | None:
    """Whether D2 fails by the old convention."""
    norm = norm_in(case, batch)
    return None if norm is None else norm < case.report.thresholds.g_norm_floor


def flip_batch(case: Case) -> float | None:
    """The batch size above which D2 fails by the old convention."""
    norm = norm_in(case, 1)
    return None if norm is None else norm / case.report.thresholds.g_norm_floor


def verdicts(case: Case) -> Verdicts:
    """Each edition's verdict at each batch size: a floor for a batch's gradient is converted to a floor @128."""
    t = case.report.thresholds
    floors = [t.g_norm_floor * batch / GROUP for batch in BATCH_SIZES]
    reports = [case.report.rejudge(replace(t, g_norm_floor=floor)) for floor in floors]
    return {edition: tuple(report.verdicts[edition].outcome for report in reports) for edition in _EDITIONS}


def flips(case: Case, batches: Sequence[int] = BATCH_SIZES) -> bool | None:
    """Whether D2 differs between these batch sizes; None where it is unknown at one."""
    answers = {below(case, batch) for batch in batches}
    return None if None in answers else len(answers) > 1


def _row(name: str, cases: Sequence[Case], judged: Sequence[Verdicts]) -> tuple[Cell, ...]:
    ours = [case.report.flags["D2"] for case in cases]
    counts = [sum(below(case, batch) is True for batch in BATCH_SIZES) for case in cases]
    return (
        Cell(name),
        range_cell([flag.value for flag in ours]),
        check_cell(cases, "D2"),
        range_cell([flip_batch(case) for case in cases], ".3g"),
        Cell(" / ".join(dict.fromkeys(f"{count} of {len(BATCH_SIZES)}" for count in counts))),
        *(Cell(_verdict_sequences(judged, edition)) for edition in _EDITIONS),
    )


def _verdict_sequences(judged: Sequence[Verdicts], edition: str) -> str:
    """The verdicts from the smallest batch to the largest; where seeds differ, each seed's, separated by slashes."""
    sequences = [" → ".join(dict.fromkeys(verdicts[edition])) for verdicts in judged]
    return " / ".join(dict.fromkeys(sequences)).replace("_", " ")


def _findings(found: Mapping[str, Sequence[Case]], judged: Mapping[str, Sequence[Verdicts]]) -> list[Finding]:
    each = [(f"{name} s{case.seed}", case) for name, cases in found.items() for case in cases]

    def existence_finding(finding_id: str, claim: str, answers: Mapping[str, bool | None]) -> Finding:
        """Holds if it is true of one network; False only if the answer is known for all of them."""
        shown = [name for name, answer in answers.items() if answer]
        unknown = [name for name, answer in answers.items() if answer is None]
        holds = True if shown else None if unknown else False
        more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
        return Finding(
            finding_id, claim, holds, f"{len(shown)} of {len(answers)}: {', '.join(shown[:6]) or 'none'}{more}."
        )

    any_batch = {name: flips(case) for name, case in each}
    papers_batches = {name: flips(case, PAPERS) for name, case in each}
    every = [verdicts for name in found for verdicts in judged[name]]
    moved = {
        name: any(len(set(verdict_sequence)) > 1 for verdict_sequence in verdicts.values())
        for (name, _), verdicts in zip(each, every, strict=True)
    }
    return [
        existence_finding(
            "d2-flips-with-batch",
            f"By the old convention D2 of one network flips between batches of {BATCH_SIZES[0]} and {BATCH_SIZES[-1]}.",
            any_batch,
        ),
        existence_finding(
            "d2-flips-between-papers-batches", "It flips between the papers' own batches, 128 and 1024.", papers_batches
        ),
        existence_finding("verdict-flips-with-batch", "A verdict flips with it.", moved),
    ]


def _figures(found: Mapping[str, Sequence[Case]], caption_text: str) -> list[Figure]:
    """One figure of norms and D2 for the primary audit's network, one of norms for the other networks."""
    ticks = tuple(map(str, BATCH_SIZES))

    def series(name: str, label: str) -> Series:
        means = []
        for batch in BATCH_SIZES:
            norms = [norm_in(case, batch) for case in found[name]]
            known = [norm for norm in norms if norm is not None]
            means.append(sum(known) / len(known) if known else None)
        return Series(label, range(len(BATCH_SIZES)), means, style=label, mark="both")

    def norms(title: str, names: Mapping[str, str]) -> Plot:
        every = tuple(series(name, label) for name, label in names.items())
        floor = {"D2 floor": DiagnosticThresholds().g_norm_floor}
        return Plot(title, "measuring batch", "mean ‖g_L[i]‖ / batch", every, y_log=True, levels=floor, ticks=ticks)

    def title(names: Sequence[str]) -> str:
        decided = [name for name in names if any(flips(case) for case in found[name])]
        which = f": {listed(decided)}" if decided else ""
        return f"D2 depends on the measuring batch for {len(decided)} of {len(names)} cases{which}"

    audit = [name for name in found if "," not in name]
    others = [name for name in found if "," in name]
    by_network: dict[str, dict[str, str]] = {}
    for name in others:
        method, _, network = name.partition(", ")
        by_network.setdefault(network, {})[name] = method
    cells = tuple(tuple(_grid_word(found[name], batch) for batch in BATCH_SIZES) for name in audit)
    grid = CellGrid("D2 by measuring batch", ticks, tuple(audit), cells)
    figure_caption = f"D2 by the old convention: fails in at least one seed, or passes in all. {caption_text}"
    plots = in_same_range([norms(network, names) for network, names in by_network.items()])
    return [
        Figure("audit", title(audit), (norms("Gradient norm", {name: name for name in audit}), grid), figure_caption),
        Figure("others", title(others), plots, f"D2 by the old convention fails under the floor. {caption_text}"),
    ]


def _grid_word(cases: Sequence[Case], batch: int) -> str:
    """The stored word of a grid cell: D2 fails in a seed, is unknown in one, or passes in all."""
    answers = [below(case, batch) for case in cases]
    return "raised" if True in answers else "open" if None in answers else "clear"


STUDY = BatchSize()
