"""A card as one HTML page: self-contained, without script, readable offline, on a phone, in the dark and on paper."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from walkback.report.cards import view
from walkback.report.sections import Card
from walkback.report.strip import strip

SIGNS = {"trustworthy": "✓", "walked_back": "✗", "inconclusive": "?"}
RESULTS = {"PASS": "good", "FAIL": "bad", "INVALID": "warn", "NOT MEASURED": "warn", "NOT INFORMATIVE": "warn"}


def html(card: Card) -> str:
    """The whole card."""
    shown = view(card)
    unusable = any(cell.value is None for x in shown.layers for cell in (x.hidden, x.grad, x.replay, x.credit))
    return (
        pages()
        .get_template("card.html")
        .render(
            card=shown,
            checks=shown.section("checks"),
            layers=shown.section("layers"),
            panels=strip(shown),
            crosses=unusable,
            before=[s for s in shown.sections if s.id == "claim"],
            after=[s for s in shown.sections if s.id not in ("claim", "checks", "layers")],
            sign=SIGNS[shown.verdict],
            kinds=RESULTS,
        )
    )


@cache
def pages() -> Environment:
    """The templates. Names of methods and notes come from strangers: everything is escaped."""
    loader = PackageLoader("walkback.report")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader)
