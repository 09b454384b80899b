"""The words that audit pages and cards explain at their end; links lead there."""

from __future__ import annotations

import re

from walkback.core.errors import InputError
from walkback.judge.glossary import explain

TERMS = (
    "verdict", "trustworthy", "walked back", "inconclusive", "cannot be judged", "depth claim", "alignment claim",
    "credit claim", "frozen baseline", "bp frozen baseline", "margin", "interval", "this checkpoint", "hidden state",
    "growth (D1)", "reference gradient", "|g_L|", "@128", "credit", "used cos", "null", "z over the null",
    "aggregate cosine Γ", "exact layer", "carried by the skip path", "depth utility (D3)", "drift (c)",
    "edition claims", "edition three", "edition four", "seed",
)  # fmt: skip


def term_id(term: str) -> str:
    """The anchor of a term."""
    return "term-" + (re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-") or term)


def explained_terms() -> list[tuple[str, str, str]]:
    """Anchor, term and explanation of every word."""
    return [(term_id(term), term, explain(term)) for term in TERMS]


def explanation(head: str) -> str:
    """The explanation of a table head; empty for a common word."""
    try:
        return explain(head)
    except InputError:
        return ""
