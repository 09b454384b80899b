"""Tables of the study `calibration`: the coverage of the printed intervals."""

from __future__ import annotations

from collections.abc import Sequence

from walkback.report.cells import Cell
from walkback.report.study_report import Table
from walkback_papers import coverage
from walkback_papers.coverage import CoverageRow


def coverage_summary_table(rows: Sequence[CoverageRow]) -> Table:
    heads = ("interval", "promised", "settings", "lowest coverage", "highest coverage", "as required")
    kinds: dict[tuple[str, bool], list[CoverageRow]] = {}
    for row in rows:
        kinds.setdefault((row.interval, row.assumptions_hold), []).append(row)
    cells = []
    for (interval, holds), found in kinds.items():
        name = interval if holds else f"{interval}, assumptions fail"
        ends = [min(row.coverage for row in found), max(row.coverage for row in found)]
        required = [row.passes for row in found if row.passes is not None]
        cells.append(
            (
                Cell(name),
                Cell(f"{100 * found[0].nominal:g}%", found[0].nominal),
                Cell(str(len(found)), len(found)),
                *(Cell(f"{100 * end:.1f}%", end) for end in ends),
                Cell(f"{sum(required)} of {len(required)}" if required else "nothing required"),
            )
        )
    note = (
        f"{rows[0].draws} draws of each setting. Required where the assumptions hold: {100 * coverage.LEAST_COVERAGE:g}"
        f"% to {100 * coverage.MOST_COVERAGE:g}%; over samples at most {100 * coverage.MOST_COVERAGE:g}% only where at "
        f"least {coverage.ENOUGH_DISCORDANT} samples are expected to be discordant. Assumptions fail: seeds of two "
        "modes, skewed values, samples taken as independent that are not, an estimated spread. For the minimum "
        "detectable margin: how often such a margin is detected."
    )
    return Table("coverage-summary", "Coverage of the printed intervals", heads, tuple(cells), note)


def coverage_table(rows: Sequence[CoverageRow]) -> Table:
    heads = ("interval", "data", "promised", "coverage", "required", "as required")
    cells = tuple(
        (
            Cell(row.interval),
            Cell(row.setting),
            Cell(f"{100 * row.nominal:g}%", row.nominal),
            Cell(coverage_text(row), row.coverage),
            Cell("–" if row.required is None else "{:g}% to {:g}%".format(*(100 * end for end in row.required))),
            Cell({True: "yes", False: "no", None: "–"}[row.passes]),
        )
        for row in rows
    )
    note = f"{rows[0].draws} draws of each row; in brackets the exact 95% binomial interval, the simulation's error."
    return Table("coverage", "Coverage by setting", heads, cells, note)


def coverage_text(row: CoverageRow) -> str:
    low, high = row.coverage_interval
    return f"{100 * row.coverage:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
