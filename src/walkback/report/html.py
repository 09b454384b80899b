"""A card as one HTML page: self-contained and without script, for wide, narrow and dark screens and for print."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from walkback.report.cards import view
from walkback.report.sections import Card
from walkback.report.strip import strip

SIGNS = {"trustworthy": "✓", "walked_back": "✗", "inconclusive": "?", "cannot_be_judged": "?"}
RESULT_CLASSES = {
    "passes": "good",
    "fails": "bad",
    "INVALID": "warn",
    "NOT MEASURED": "warn",
    "NOT INFORMATIVE": "warn",
}
"""CSS classes by the displayed result of a check."""


def html(card: Card) -> str:
    """The whole card as HTML."""
    shown = view(card)
    has_crosses = any(cell.value is None for x in shown.layers for cell in (x.hidden, x.grad, x.replay, x.credit))
    return (
        pages()
        .get_template("card.html")
        .render(
            card=shown,
            checks=shown.section("checks"),
            layers=shown.section("layers"),
            panels=strip(shown),
            crosses=has_crosses,
            before=[s for name in ("blocks", "claim") for s in shown.sections if s.id == name],
            after=[s for s in shown.sections if s.id not in ("blocks", "claim", "checks", "layers")],
            sign=SIGNS[shown.verdict],
            result_classes=RESULT_CLASSES,
        )
    )


@cache
def pages() -> Environment:
    """The template environment. It escapes everything: method names and notes may come from untrusted cards."""
    loader = PackageLoader("walkback.report")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader)
