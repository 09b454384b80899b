"""A stored card as plain text for a terminal: claims with their reasons, checks, layers and blocks, or all of it."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import TextWrapper

from walkback.report.cards import view
from walkback.report.overview import aligned_table
from walkback.report.sections import Card, Section

_WIDTH = 100
_MAIN = ("claims", "checks", "layers", "blocks", "rerun")
"""The sections that are shown unless all are asked for."""


def stored_card_text(card: Card, full: bool = False) -> str:
    """The card's main sections, or all of them; a damaged card is refused."""
    shown = [section for section in view(card).sections if full or section.id in _MAIN]
    shown.sort(key=lambda section: section.id != "claims")
    return "\n".join(line for section in shown for line in ("", *_section_lines(section)))


def _section_lines(section: Section) -> list[str]:
    lines = [section.title]
    if section.id == "claims":
        lines += _wrapped(f"{name}: {outcome}. {why}" for name, outcome, why in section.rows)
    elif section.kind == "table":
        lines += [f"  {line}" for line in aligned_table(section)]
    elif section.kind == "pairs":
        lines += _wrapped(f"{name}: {text}" for name, text in section.rows)
    else:
        lines += _wrapped(row[0] for row in section.rows)
    return lines + _wrapped(f"{subject}: {text}" for subject, text in section.notes)


def _wrapped(texts: Iterable[str]) -> list[str]:
    wrapper = TextWrapper(_WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return [line for text in texts for line in wrapper.wrap(text)]
