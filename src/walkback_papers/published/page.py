"""The reproduction page in Markdown: every published figure compared with ours, section by section."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from walkback.report.cells import EMPTY_CELL, counted
from walkback.report.markdown import Marked, markdown_escape, table_lines
from walkback_papers.published.agree import RULE
from walkback_papers.published.figure import REFERENCE_BATCH, SOURCES, FigureQuery, PublishedFigure, figures
from walkback_papers.published.finder import NO_RUN
from walkback_papers.published.parse_number import parse
from walkback_papers.published.reproduce import (
    OUTCOMES,
    SENSITIVITY,
    Part,
    Reproduced,
    Reproduction,
    ReproductionRow,
    RowOutcome,
)

_HEADS = ("row", "figure", "published", "ours", "ratio or difference", "outcome", "study")
NumberedRows = Sequence[tuple[str, ReproductionRow]]
"""Rows with their numbers, such as `2.4`."""
UNTESTED = "Nothing has been tested to explain it."


def page(reproduction: Reproduction, results: Path, out: Path) -> str:
    """The whole page; links are relative to `out`, where it is written."""
    base = Path(os.path.relpath(results, out.parent)).as_posix()
    results_folder = _relative(results)
    lines = [
        "# Reproduction: every published figure and ours",
        "",
        f"**{summary(reproduction.rows)}**",
        "",
        *_introduction(reproduction, results_folder, out),
        *_counts(reproduction),
    ]
    for number, part in enumerate(reproduction.parts, start=1):
        lines += _part(number, part, base, results_folder, reproduction.scale.name)
    return "\n".join(lines) + "\n"


def _relative(path: Path) -> str:
    """A path as shown on the page: relative, so that it does not name one machine's folders."""
    return Path(os.path.relpath(path)).as_posix() if path.is_absolute() else path.as_posix()


def summary(rows: Sequence[ReproductionRow]) -> str:
    """Sentences with the number of rows, and of distinct figures, by outcome."""
    agree, differ, noisy, missing = (sum(row.outcome == outcome for row in rows) for outcome in OUTCOMES)
    settings, fitted = (_count_agreeing(rows, test) for test in (is_taken_over, is_calibration))
    by_quantity: dict[FigureQuery, set[RowOutcome]] = {}
    for row in rows:
        by_quantity.setdefault(row.figure.quantity, set()).add(row.outcome)
    found = list(by_quantity.values())
    always, ever = sum(outcomes == {"agrees"} for outcomes in found), sum("differs" in outcomes for outcomes in found)
    return (
        f"{counted(len(rows), 'rows')}: {agree} agree, {differ} differ, {noisy} are too noisy to tell, {missing} not "
        f"measured. Of those that agree, {fitted} are calibration (the recipe was fitted to them) and {settings} are "
        f"settings that were taken over; {agree - fitted - settings} are neither. They are {len(found)} distinct "
        f"figures, some printed more than once: {always} agree in all their rows, {ever} differ in at least one, "
        f"{len(found) - always - ever} do neither."
    )


def is_taken_over(figure: PublishedFigure) -> bool:
    """Whether it is a setting that our recipe takes over, so that it agrees by design."""
    return figure.kind == "setting"


def is_calibration(figure: PublishedFigure) -> bool:
    """Whether a choice of our recipe was fitted to it."""
    return bool(figure.calibration) and not is_taken_over(figure)


def _count_agreeing(rows: Sequence[ReproductionRow], test: Callable[[PublishedFigure], bool]) -> int:
    return sum(row.outcome == "agrees" and test(row.figure) for row in rows)


def _introduction(reproduction: Reproduction, results: str, out: Path) -> list[str]:
    known = figures()
    twins = [(known[figure.twin], figure) for figure in known.values() if figure.twin]
    ratios = ", ".join(f"{parse(one.text).low / parse(other.text).low:.1f}" for one, other in twins)
    sources = ", ".join(f"{name} {words}" for name, words in SOURCES.items())
    scale = reproduction.scale
    n = len(scale.seeds)
    return [
        f"Written by `walkback reproduction --results {results} --scale {scale.name} --out {_relative(out)}` from "
        "stored results; no number of ours is typed by hand. "
        f"Scale {scale.name}: {markdown_escape(scale.words)}. The rows are based on "
        f"{counted(len(reproduction.runs), 'runs')} in `{results}/runs`, of which "
        f"{reproduction.finished} are finished.",
        "",
        *_training(reproduction),
        f"Sources: {markdown_escape(sources)}. Ours: mean ± standard deviation over {counted(n, 'seeds')} "
        f"({', '.join(map(str, scale.seeds))}), n = {n}, ddof = 1; seed by seed where the papers print it so.",
        "",
        "## When two figures agree",
        "",
        *(f"- {text}" for text in RULE),
        "- Gradient norms are quoted for the mean loss of a batch, and the papers mix batches of 128 and 1024. Ours "
        f"are @{REFERENCE_BATCH}; a published figure @1024 is multiplied by 8 before it is compared, as noted in its "
        f"row. Figures printed for both batches differ by factors of {ratios}, from which this was inferred.",
        "- **Calibration**: choices that the papers leave open were fitted to this figure ([recipe](recipe.md)), so "
        "agreement confirms nothing.",
        "- Where a figure differs, the list below its table states what was tested to explain it. Variants are those "
        f"of the study `{SENSITIVITY}`, which trains for as many epochs as the penalty studies; our value under each "
        "is given.",
        "",
    ]


def _training(reproduction: Reproduction) -> list[str]:
    """Training time of all stored runs by device, the longest first."""
    devices = sorted(reproduction.training.items(), key=lambda found: -found[1][1])
    if not devices:
        return []
    parts = [f"{counted(runs, 'runs')} {seconds / 60:.0f} minutes on {name}" for name, (runs, seconds) in devices]
    return [f"Training took, compiling and evaluation included: {markdown_escape('; '.join(parts))}.", ""]


def _counts(reproduction: Reproduction) -> list[str]:
    heads = ("section", "rows", *OUTCOMES, "calibration among those that agree")
    rows = []
    for number, part in enumerate(reproduction.parts, start=1):
        outcomes = [sum(row.outcome == outcome for row in part.rows) for outcome in OUTCOMES]
        fitted = _count_agreeing(part.rows, is_calibration)
        rows.append((f"{number}. {part.section.title}", *map(str, (len(part.rows), *outcomes, fitted))))
    return table_lines(heads, rows)


def _part(number: int, part: Part, base: str, results: str, scale: str) -> list[str]:
    named = [(f"{number}.{place}", row) for place, row in enumerate(part.rows, start=1)]
    lines = ["", f"## {number}. {markdown_escape(part.section.title)}", ""]
    for note in part.section.notes:
        lines += [markdown_escape(note), ""]
    lines += table_lines(_HEADS, [_cells(name, row, base) for name, row in named])
    lines += _differing(named)
    missing = [(name, row.found.reason) for name, row in named if row.outcome == "not measured"]
    lines += _grouped_list("Not measured", missing)
    notes = [(name, " ".join(filter(None, (row.figure.note, _caveat(row))))) for name, row in named]
    lines += _grouped_list("Notes", [(name, text) for name, text in notes if text])
    return [*lines, *_commands_and_runs(named, results, scale)]


def _cells(name: str, row: ReproductionRow, base: str) -> tuple[str, ...]:
    figure, found = row.figure, row.found
    published = " ".join(filter(None, (figure.text, figure.convention, f"[{figure.source}]")))
    factor = 1 if figure.batch is None else figure.batch // REFERENCE_BATCH
    off = f"{found.off}, theirs ×{factor}" if factor != 1 and found.off else found.off
    words = f"**{found.outcome}**" if found.outcome == "differs" else found.outcome
    if is_calibration(figure):
        words += " (calibration)"
    elif figure.calibration and found.outcome == "agrees":
        words += f" ({markdown_escape(figure.calibration)})"
    # HTML, because Sphinx resolves Markdown links among its own pages and does not find this one.
    link = f'<a href="{quote(str(PurePosixPath(base, figure.study, "study.md")))}">{markdown_escape(figure.study)}</a>'
    return (name, figure.what, published, found.ours or EMPTY_CELL, off or EMPTY_CELL, Marked(words), Marked(link))


def _differing(named: NumberedRows) -> list[str]:
    """What was tested for every row that differs; rows with the same text share an entry."""
    by_text: dict[tuple[str, ...], list[str]] = {}
    for name, row in named:
        if row.outcome == "differs":
            by_text.setdefault(_tested(row), []).append(name)
    lines = []
    for (text, *trials), names in by_text.items():
        lines += [f"- {row_ranges(names)}: {text}", *(f"  - {trial}" for trial in trials)]
    return ["", "**Where they differ: what was tested or is known**", "", *lines] if lines else []


def _tested(row: ReproductionRow) -> tuple[str, ...]:
    """A sentence, and our value under each variant."""
    fitted = f"Fitted to it: the recipe's {row.figure.calibration}." if is_calibration(row.figure) else ""
    trials = tuple(
        f"{SENSITIVITY}, {markdown_escape(name)}: {markdown_escape(_trial(found))}" for name, found in row.trials
    )
    tested = row.figure.tested or ("Variants of the recipe." if trials else UNTESTED)
    return (markdown_escape(" ".join(filter(None, (tested, fitted)))), *trials)


def _trial(found: Reproduced) -> str:
    if found.outcome == "not measured":
        return "not run" if found.reason.startswith(NO_RUN) else f"not measured ({found.reason})"
    return f"{found.ours} ({', '.join(filter(None, (found.off, found.outcome)))})"


def _caveat(row: ReproductionRow) -> str:
    return f"{row.found.reason}." if row.outcome != "not measured" and row.found.reason else ""


def _grouped_list(title: str, given: Iterable[tuple[str, str]]) -> list[str]:
    """A list in which rows with the same text share a line."""
    by: dict[str, list[str]] = {}
    for name, text in given:
        by.setdefault(text, []).append(name)
    if not by:
        return []
    return ["", f"**{title}**", "", *(f"- {row_ranges(names)}: {markdown_escape(text)}" for text, names in by.items())]


def row_ranges(names: Sequence[str]) -> str:
    """Row numbers as text; consecutive ones as `2.4 to 2.9`."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _row_number(name) == _row_number(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]} to {run[-1]}" for run in runs)


def _row_number(name: str) -> int:
    return int(name.rpartition(".")[2])


def _commands_and_runs(named: NumberedRows, results: str, scale: str) -> list[str]:
    """The command that makes the runs behind the rows, and their names."""
    lines = ["", "<details><summary>Commands and runs behind these rows</summary>", ""]
    for study in dict.fromkeys(row.figure.study for _, row in named if row.runs):
        lines += [
            f"`walkback study {study} --scale {scale} --out again` trains these runs of `{results}/runs` again:",
            "",
        ]
        by: dict[tuple[str, ...], list[str]] = {}
        for name, row in named:
            if row.figure.study == study and row.runs:
                by.setdefault(row.runs, []).append(name)
        lines += [f"- {row_ranges(names)}: {', '.join(f'`{run}`' for run in runs)}" for runs, names in by.items()]
        lines.append("")
    return [*lines, "</details>"] if len(lines) > 3 else []
