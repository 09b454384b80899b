"""A card as Markdown: tables that GitHub, GitLab and pandoc read, and lines that can be read as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from walkback.report.cards import view
from walkback.report.sections import Card, Section

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")


class Marked(str):
    """A table's cell that is Markdown already; it is written as it stands."""

    __slots__ = ()


def markdown(card: Card) -> str:
    """The whole card."""
    shown = view(card)
    parts = [
        f"# {markdown_escape(shown.title)}: {shown.word}",
        "",
        f"**{markdown_escape(shown.why)}**",
        "",
        *(f"- {markdown_escape(line)}" for line in (*shown.beside, shown.facts)),
        *(line for section in shown.sections for line in markdown_table(section)),
        "",
        f"Written by walkback {markdown_escape(shown.version)} from report.json, which holds the same numbers in full.",
    ]
    return "\n".join(parts) + "\n"


def markdown_escape(text: str) -> str:
    """Plain text, so that nothing in it becomes markup or a new line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def markdown_table(section: Section) -> list[str]:
    """One section: its heading, its rows and its reasons."""
    lines = ["", f"## {section.title}", ""]
    if section.kind == "commands":
        # Indented, not fenced: whatever the command holds, it cannot end the block.
        lines += [f"    {' '.join(row[0].split())}" for row in section.rows]
    elif section.kind == "list":
        lines += [f"- {markdown_escape(row[0])}" for row in section.rows]
    elif section.kind == "pairs":
        lines += [f"- **{markdown_escape(name)}**: {markdown_escape(text)}" for name, text in section.rows]
    else:
        lines += table_lines(section.heads, section.rows)
    if section.notes:
        lines += ["", *(f"- {markdown_escape(about)}: {markdown_escape(text)}" for about, text in section.notes)]
    return lines


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines, its texts as they are and what is `Marked` as markup."""
    return [_row(heads), _row(Marked("---") for _ in heads), *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell if isinstance(cell, Marked) else markdown_escape(cell) for cell in cells)} |"
