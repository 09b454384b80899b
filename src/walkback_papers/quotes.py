"""Quotations from stored studies in hand-written pages: the text between two marks is copied from `study.json`.

    <!-- quote primary-audit/audit row="DFA" column="accuracy" --><!-- /quote -->      one cell
    <!-- quote primary-audit/audit columns="method; accuracy" rows="BP; DFA" -->       a table, or a part of it
    <!-- quote primary-audit#2 -->                                                     the second finding
    <!-- quote primary-audit/layers -->                                                a figure

The marks are HTML comments, so they are invisible in rendered Markdown and the page can be filled again. Markdown
treats a line that begins with a comment as HTML up to its end: a finding is therefore written on the line after its
mark, and a quoted cell must not begin a line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from walkback.core.errors import InputError, unknown
from walkback.report.markdown import markdown_escape, table_lines
from walkback.report.study_report import Finding

_Json = Mapping[str, Any]
"""The content of a `study.json`, or one of its tables."""
_MARK = re.compile(r"(<!-- quote (?P<target>.*?) -->)(?P<old>.*?)(<!-- /quote -->)", re.DOTALL)
_BEGIN = "<!-- quote "
_TARGET = re.compile(r"(?P<study>[a-z0-9-]+)(?:/(?P<name>[\w-]+)|#(?P<finding>\d+))")


def fill_quotations(page: str, load_study: Callable[[str], _Json], link: str) -> str:
    """The page with every quotation filled from the stored studies; links to figures start with `link`."""
    if page.count(_BEGIN) != len(_MARK.findall(page)):
        raise InputError("A quotation has no end. Write <!-- /quote --> after it.")

    def filled(match: re.Match[str]) -> str:
        text = _quotation(match["target"], load_study, link)
        before = page[: match.start()].rpartition("\n")[2]
        if not text.startswith("\n") and not before.strip(" -*>"):
            raise InputError(
                f"The quotation '{match['target']}' begins a line, so Markdown would read the line as HTML. "
                "Write a word before it."
            )
        return f"{match[1]}{text}{match[4]}"

    return _MARK.sub(filled, page)


def _quotation(mark: str, load_study: Callable[[str], _Json], link: str) -> str:
    try:
        name, *words = shlex.split(mark)
    except ValueError as error:
        raise InputError(f"The quotation '{mark}' cannot be read: {error}.") from error
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    target = _TARGET.fullmatch(name)
    if target is None or len(settings) != len(words):
        raise InputError(
            f'The quotation \'{mark}\' cannot be read. Write STUDY/TABLE row="…" column="…", STUDY/TABLE '
            'columns="…; …" rows="…; …", STUDY/FIGURE or STUDY#1.'
        )
    study = load_study(target["study"])
    if target["finding"]:
        _refuse_unknown_settings(mark, settings, ())
        return _finding(study, int(target["finding"]))
    figures = {figure["name"]: figure for figure in study["figures"]}
    tables = {table["name"]: table for table in study["tables"]}
    # A figure may have the same name as a table; rows and columns select the table.
    if target["name"] in figures and not (settings and target["name"] in tables):
        _refuse_unknown_settings(mark, settings, ())
        title = markdown_escape(figures[target["name"]]["title"])
        return f"\n![{title}]({link}/{target['study']}/{target['name']}.svg)\n"
    if target["name"] not in tables:
        raise unknown("table or figure", target["name"], [*tables, *figures])
    table = tables[target["name"]]
    if "row" in settings or "column" in settings:
        _refuse_unknown_settings(mark, settings, ("row", "column"))
        return _cell(mark, table, settings.get("row", ""), settings.get("column", ""))
    _refuse_unknown_settings(mark, settings, ("rows", "columns"))
    return _table(table, _split_list(settings.get("rows")), _split_list(settings.get("columns")))


def _refuse_unknown_settings(mark: str, settings: Mapping[str, str], known: Sequence[str]) -> None:
    for name in settings:
        if name not in known:
            raise unknown(f"setting of the quotation '{mark}'", name, known)


def _split_list(text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(";")]


def _finding(study: _Json, number: int) -> str:
    findings = study["findings"]
    if not 1 <= number <= len(findings):
        raise InputError(f"{study['name']} has {len(findings)} findings; there is no number {number}.")
    found = Finding.from_json(findings[number - 1])
    return f"\n  {markdown_escape(found.claim)} **{found.word.capitalize()}**: {markdown_escape(found.details)}"


def _cell(mark: str, table: _Json, row: str, column: str) -> str:
    (index,) = _columns(table, [column])
    found = [cells for cells in table["rows"] if cells[0]["text"] == row]
    if not found:
        raise unknown("row", row, [cells[0]["text"] for cells in table["rows"]])
    if len(found) > 1:
        raise InputError(f"The quotation '{mark}' matches {len(found)} rows. Quote the table with rows=\"{row}\".")
    return markdown_escape(found[0][index]["text"])


def _table(table: _Json, rows: list[str] | None, columns: list[str] | None) -> str:
    shown = _columns(table, columns)
    known = [cells[0]["text"] for cells in table["rows"]]
    for row in rows or []:
        if row not in known:
            raise unknown("row", row, known)
    cells = [each for each in table["rows"] if rows is None or each[0]["text"] in rows]
    heads = [table["heads"][index] for index in shown]
    lines = table_lines(heads, [[each[index]["text"] for index in shown] for each in cells])
    return "\n\n" + "\n".join(lines) + f"\n\n{markdown_escape(table['caption'])}\n\n"


def _columns(table: _Json, names: list[str] | None) -> list[int]:
    heads = list(table["heads"])
    for name in names or []:
        if name not in heads:
            raise unknown("column", name, heads)
    return list(range(len(heads))) if names is None else [heads.index(name) for name in names]
