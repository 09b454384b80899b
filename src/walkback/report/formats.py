"""The formats a card can be written in."""

from __future__ import annotations

import json
from collections.abc import Callable

from walkback.core.errors import unknown
from walkback.report.html import html
from walkback.report.latex import latex
from walkback.report.markdown import markdown
from walkback.report.modelcard import modelcard
from walkback.report.sections import Card


def card_json(card: Card) -> str:
    """The card as indented JSON."""
    return json.dumps(card, indent=1, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Card], str]] = {
    "md": markdown,
    "tex": latex,
    "html": html,
    "json": card_json,
    "modelcard": modelcard,
}
PAGES = ("md", "tex", "html")
"""The formats for people to read."""


def ending(form: str) -> str:
    """The ending of a file in this format."""
    return "modelcard.md" if form == "modelcard" else form


def render(card: Card, form: str) -> str:
    """The card as text in one of `FORMATS`."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    return FORMATS[form](card)
