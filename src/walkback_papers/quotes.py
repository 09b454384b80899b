"""Quotations from stored studies in pages that people write: between two marks stands what the study says, and no more.

    <!-- quote primary-audit/audit row="DFA" column="accuracy" --><!-- /quote -->      one cell
    <!-- quote primary-audit/audit columns="method; accuracy" rows="BP; DFA" -->       a table, or a part of it
    <!-- quote primary-audit#2 -->                                                     the second finding
    <!-- quote primary-audit/layers -->                                                a figure

The marks are comments, so a page reads well wherever Markdown is shown, and can be filled again. To Markdown a line
that begins with a comment is HTML to its end: a finding therefore stands on the line after its mark, and a cell must
not begin a line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from walkback.core.errors import InputError, unknown
from walkback.report.markdown import markdown_escape, table_lines
from walkback.report.study_report import Finding

_Story = Mapping[str, Any]
"""A study as its `study.json` holds it."""
_MARK = re.compile(r"(<!-- quote (?P<what>.*?) -->)(?P<old>.*?)(<!-- /quote -->)", re.DOTALL)
_BEGIN = "<!-- quote "
_WHAT = re.compile(r"(?P<study>[a-z0-9-]+)(?:/(?P<name>[\w-]+)|#(?P<finding>\d+))")


def fill(page: str, study_report_of: Callable[[str], _Story], link: str) -> str:
    """The page with every quotation as the stories give it now; figures are linked below `link`."""
    if page.count(_BEGIN) != len(_MARK.findall(page)):
        raise InputError("A quotation has no end. Write <!-- /quote --> after what it stands for.")

    def filled(match: re.Match[str]) -> str:
        text = _quoted(match["what"], study_report_of, link)
        before = page[: match.start()].rpartition("\n")[2]
        if not text.startswith("\n") and not before.strip(" -*>"):
            raise InputError(
                f"The quotation '{match['what']}' begins a line, so Markdown would take the line for HTML. "
                "Write a word before it."
            )
        return f"{match[1]}{text}{match[4]}"

    return _MARK.sub(filled, page)


def _quoted(what: str, study_report_of: Callable[[str], _Story], link: str) -> str:
    try:
        name, *words = shlex.split(what)
    except ValueError as error:
        raise InputError(f"The quotation '{what}' cannot be read: {error}.") from error
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    asked = _WHAT.fullmatch(name)
    if asked is None or len(settings) != len(words):
        raise InputError(
            f'The quotation \'{what}\' cannot be read. Write STUDY/TABLE row="…" column="…", STUDY/TABLE '
            'columns="…; …" rows="…; …", STUDY/FIGURE or STUDY#1.'
        )
    study_report = study_report_of(asked["study"])
    if asked["finding"]:
        _refuse_others(what, settings, ())
        return _finding(study_report, int(asked["finding"]))
    figures = {figure["name"]: figure for figure in study_report["figures"]}
    tables = {table["name"]: table for table in study_report["tables"]}
    # A figure may have the name of the table it shows; rows and columns are the table's.
    if asked["name"] in figures and not (settings and asked["name"] in tables):
        _refuse_others(what, settings, ())
        title = markdown_escape(figures[asked["name"]]["title"])
        return f"\n![{title}]({link}/{asked['study']}/{asked['name']}.svg)\n"
    if asked["name"] not in tables:
        raise unknown("table or figure", asked["name"], [*tables, *figures])
    table = tables[asked["name"]]
    if "row" in settings or "column" in settings:
        _refuse_others(what, settings, ("row", "column"))
        return _cell(what, table, settings.get("row", ""), settings.get("column", ""))
    _refuse_others(what, settings, ("rows", "columns"))
    return _table(table, _listed(settings.get("rows")), _listed(settings.get("columns")))


def _refuse_others(what: str, settings: Mapping[str, str], known: Sequence[str]) -> None:
    for name in settings:
        if name not in known:
            raise unknown(f"setting of the quotation '{what}'", name, known)


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(";")]


def _finding(study_report: _Story, number: int) -> str:
    findings = study_report["findings"]
    if not 1 <= number <= len(findings):
        raise InputError(f"{study_report['name']} has {len(findings)} findings; there is no number {number}.")
    found = Finding(**findings[number - 1])
    return f"\n  {markdown_escape(found.claim)} **{found.word.capitalize()}**: {markdown_escape(found.said)}"


def _cell(what: str, table: _Story, row: str, column: str) -> str:
    (index,) = _columns(table, [column])
    found = [cells for cells in table["rows"] if cells[0]["text"] == row]
    if not found:
        raise unknown("row", row, [cells[0]["text"] for cells in table["rows"]])
    if len(found) > 1:
        raise InputError(f"The quotation '{what}' means {len(found)} rows. Quote the table with rows=\"{row}\".")
    return markdown_escape(found[0][index]["text"])


def _table(table: _Story, rows: list[str] | None, columns: list[str] | None) -> str:
    shown = _columns(table, columns)
    known = [cells[0]["text"] for cells in table["rows"]]
    for row in rows or []:
        if row not in known:
            raise unknown("row", row, known)
    cells = [each for each in table["rows"] if rows is None or each[0]["text"] in rows]
    heads = [table["heads"][index] for index in shown]
    lines = table_lines(heads, [[each[index]["text"] for index in shown] for each in cells])
    return "\n\n" + "\n".join(lines) + f"\n\n{markdown_escape(table['caption'])}\n\n"


def _columns(table: _Story, names: list[str] | None) -> list[int]:
    heads = list(table["heads"])
    for name in names or []:
        if name not in heads:
            raise unknown("column", name, heads)
    return list(range(len(heads))) if names is None else [heads.index(name) for name in names]
