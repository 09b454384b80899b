"""A card as one HTML page: self-contained and without script, for wide, narrow and dark screens and for print."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from walkback.report.cards import view
from walkback.report.picture import card_picture, plots_key
from walkback.report.sections import CLAIM_KINDS, Card
from walkback.report.strip import strip
from walkback.report.terms import explained_terms, explanation, term_id

SIGNS = {"trustworthy": "✓", "walked_back": "✗", "inconclusive": "?", "cannot_be_judged": "?"}
VERDICT_CLASSES = {"trustworthy": "good", "walked_back": "bad", "inconclusive": "warn", "cannot_be_judged": "warn"}
RESULT_CLASSES = {
    "passes": "good",
    "fails": "bad",
    "INVALID": "warn",
    "NOT MEASURED": "warn",
    "NOT INFORMATIVE": "warn",
}
"""CSS classes by the displayed result of a check."""


def html(card: Card, audit: str = "") -> str:
    """The whole card as HTML; `audit` is the path of the page of the audit that it belongs to."""
    shown = view(card)
    has_crosses = any(cell.value is None for x in shown.layers for cell in (x.hidden, x.grad, x.replay, x.credit))
    apart = ("claims", "checks", "layers", "limits")
    page = (
        pages()
        .get_template("card.html")
        .render(
            card=shown,
            **{name: shown.section(name) for name in apart},
            panels=strip(shown),
            crosses=has_crosses,
            folded=[section for section in shown.sections if section.id not in apart],
            picture=card_picture(card),
            key=plots_key(card),
            audit=quote(audit),
            sign=SIGNS[shown.verdict],
            result_classes=RESULT_CLASSES,
            claim_kinds={name: CLAIM_KINDS.get(claim["outcome"], "warn") for name, claim in card["claims"].items()},
            terms=explained_terms(),
            term_id=term_id,
            explanation=explanation,
        )
    )
    return with_policy(page)


@cache
def pages() -> Environment:
    """The template environment. It escapes everything: method names and notes may come from untrusted cards."""
    loader = PackageLoader("walkback.report")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader)


def script(name: str) -> Markup:
    """A script of the templates, for an element `script`."""
    return Markup((files("walkback.report") / "templates" / name).read_text(encoding="utf-8"))


def with_policy(page: str) -> str:
    """The page with a policy that allows its own styles and scripts by their hashes, and no request at all."""
    allowed = {kind: re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL) for kind in ("style", "script")}
    rules = [f"{kind}-src {' '.join(map(_source, texts)) or repr('none')}" for kind, texts in allowed.items()]
    policy = "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'"])
    return page.replace("<title>", f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>', 1)


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
