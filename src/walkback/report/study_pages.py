"""A study's files: tables as Markdown, LaTeX and JSON, figures as SVG and PDF, and one HTML page with everything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from walkback.core.files import drop_leftovers, friendly_os_errors, write_atomic
from walkback.report import latex, markdown
from walkback.report.columns import fitting
from walkback.report.figures import draw
from walkback.report.html import pages
from walkback.report.sections import Section
from walkback.report.study_report import StudyReport, Table

STUDY_FILE = "study.json"


def save_study_report(study_report: StudyReport, folder: Path) -> list[Path]:
    """Write all files into `folder`, each atomically, the JSON last; returns their paths."""
    files: dict[str, bytes] = {}
    drawings = {figure.name: draw(figure, "svg") for figure in study_report.figures}
    for figure in study_report.figures:
        files[f"{figure.name}.svg"] = drawings[figure.name]
        files[f"{figure.name}.pdf"] = draw(figure, "pdf")
    for table in study_report.tables:
        files[f"{table.name}.md"] = table_markdown(table).encode()
        files[f"{table.name}.tex"] = table_latex(table).encode()
    files["study.md"] = study_markdown(study_report).encode()
    files["index.html"] = study_page(
        study_report, {name: inline(data, name) for name, data in drawings.items()}
    ).encode()
    files[STUDY_FILE] = (json.dumps(study_report.to_json(), indent=1, allow_nan=False) + "\n").encode()
    with friendly_os_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        drop_leftovers(folder / name)
        write_atomic(folder / name, data)
    return [folder / name for name in files]


def table_markdown(table: Table) -> str:
    lines = markdown.markdown_table(_section(table))
    return "\n".join([*lines[1:], "", markdown.markdown_escape(table.caption)]) + "\n"


def table_latex(table: Table) -> str:
    section = _section(table)
    parts = [
        r"% Needs \usepackage{array,booktabs} and \usepackage[T1]{fontenc}.",
        "\\begingroup\\sloppy",
        *_latex_pieces(section),
        f"{latex.breakable(table.caption)}\\par",
        "\\endgroup",
    ]
    return "\n".join(parts) + "\n"


def _latex_pieces(section: Section) -> list[str]:
    """The table split into as few pieces as fit the page width; each repeats the first column."""
    pieces = fitting(section.heads, section.rows)
    lines: list[str] = []
    for number, (columns, layout) in enumerate(pieces, start=1):
        heads, *rows = ([row[column] for column in columns] for row in (section.heads, *section.rows))
        title = section.title if len(pieces) == 1 else f"{section.title} ({number} of {len(pieces)})"
        notes = section.notes if number == len(pieces) else ()
        piece = replace(section, title=title, heads=tuple(heads), rows=tuple(map(tuple, rows)), notes=notes)
        lines += latex.latex_table(piece, layout)
    return lines


def study_markdown(study_report: StudyReport) -> str:
    """The study as Markdown; figures are linked."""
    parts = [
        f"# {markdown.markdown_escape(study_report.title)}",
        "",
        markdown.markdown_escape(study_report.question),
        "",
        *(
            f"- **{f.word}**: {markdown.markdown_escape(f.claim)} {markdown.markdown_escape(f.details)}"
            for f in study_report.findings
        ),
        *(f"\n{table_markdown(table)}" for table in study_report.tables),
        *(
            f"\n![{markdown.markdown_escape(f.title)}]({f.name}.svg)\n\n{markdown.markdown_escape(f.caption)}"
            for f in study_report.figures
        ),
        "",
        *(f"- {markdown.markdown_escape(fact)}" for fact in study_report.facts),
        # A paragraph of its own, or the indented commands would belong to the list above.
        *(["", "To reproduce it:"] if study_report.commands else []),
        *(f"\n    {command}" for command in study_report.commands),
        *_run_links(study_report),
    ]
    return "\n".join(parts) + "\n"


def run_link(name: str) -> str:
    """The path of a run's record relative to a study's folder, quoted as a URL."""
    return f"../runs/{quote(name)}/run.json"


def _run_links(study_report: StudyReport) -> list[str]:
    """Links to the records of the runs: what was trained, when and where."""
    if not study_report.runs:
        return []
    links = [f"- [{markdown.markdown_escape(name)}]({run_link(name)})" for name in study_report.runs]
    return ["", f"<details><summary>Runs behind every number ({len(links)})</summary>", "", *links, "", "</details>"]


def study_page(study_report: StudyReport, drawings: dict[str, Markup]) -> str:
    """One self-contained HTML page."""
    reasons = {table.name: _section(table).notes for table in study_report.tables}
    page = pages().get_template("study.html")
    return page.render(study_report=study_report, drawings=drawings, reasons=reasons, run_link=run_link)


def inline(drawing: bytes, name: str) -> Markup:
    """An SVG for embedding in a page: only its root element, with ids made unique by `name`.

    It may shrink to 80% on a narrow screen and is scrolled below that, so that its text stays readable.
    """
    text = drawing.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    width = re.search(r'width="([\d.]+)pt"', text)
    min_width = f' style="min-width: {0.8 * float(width[1]):.0f}pt"' if width else ""
    return Markup(text.replace("<svg", f"<svg{min_width}", 1))


def _section(table: Table) -> Section:
    rows = tuple(tuple(cell.text for cell in row) for row in table.rows)
    reasons = dict.fromkeys((cell.text, cell.reason) for row in table.rows for cell in row if cell.reason)
    notes = (*reasons, *(("note", note) for note in table.notes))
    return Section(table.name, table.title, "table", rows, table.heads, notes)
