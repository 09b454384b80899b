"""A card as Markdown, with tables that GitHub, GitLab and pandoc can read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from walkback.report.cards import view
from walkback.report.sections import Card, Section

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")


class Marked(str):
    """A table cell that is already Markdown and is not escaped."""

    __slots__ = ()


def markdown(card: Card) -> str:
    """The whole card as Markdown."""
    shown = view(card)
    parts = [
        f"# {markdown_escape(shown.title)}: {shown.verdict_text}",
        "",
        f"**{markdown_escape(shown.explanation)}**",
        "",
        *(f"- {markdown_escape(line)}" for line in (*shown.summary_lines, shown.facts)),
        *(line for section in shown.sections for line in markdown_table(section)),
        "",
        f"Written by walkback {markdown_escape(shown.version)} from report.json, which holds the same numbers in full.",
    ]
    return "\n".join(parts) + "\n"


def markdown_escape(text: str) -> str:
    """Escape a text so that nothing in it becomes markup or a line break."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def markdown_table(section: Section) -> list[str]:
    """The lines of one section: heading, rows and notes."""
    lines = ["", f"## {section.title}", ""]
    if section.kind == "commands":
        # Indented instead of fenced: no content of a command can end an indented block.
        lines += [f"    {' '.join(row[0].split())}" for row in section.rows]
    elif section.kind == "list":
        lines += [f"- {markdown_escape(row[0])}" for row in section.rows]
    elif section.kind == "pairs":
        lines += [f"- **{markdown_escape(name)}**: {markdown_escape(text)}" for name, text in section.rows]
    else:
        lines += table_lines(section.heads, section.rows)
    if section.notes:
        lines += ["", *(f"- {markdown_escape(subject)}: {markdown_escape(text)}" for subject, text in section.notes)]
    return lines


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; cells are escaped except those that are `Marked`."""
    return [_row(heads), _row(Marked("---") for _ in heads), *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell if isinstance(cell, Marked) else markdown_escape(cell) for cell in cells)} |"
