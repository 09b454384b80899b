"""The index of a folder: a table of the cards in it, verdict first, and links to its audits and studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from urllib.parse import quote

from walkback.judge.audit_table import AuditTable
from walkback.judge.editions import Outcome
from walkback.judge.statistics import digits_of
from walkback.report.audit_page.sentence import counted_verdicts
from walkback.report.cells import EMPTY_CELL, interval
from walkback.report.html import SIGNS, VERDICT_CLASSES, pages, with_policy
from walkback.report.sections import VERDICT_WORDS, Card
from walkback.report.terms import explanation

INDEX = "index.html"
GENERATOR = '<meta name="generator" content="walkback render">'
"""Marks a page that `walkback render` wrote, and may write again."""
_ORDER: tuple[Outcome, ...] = ("walked_back", "cannot_be_judged", "inconclusive", "trustworthy")
HEADS = ("verdict", "method", "seed", "network and data", "accuracy", "margin")


@dataclass(frozen=True)
class IndexEntry:
    """One row: a card, or a method of an audit."""

    outcome: Outcome
    method: str
    seeds: str
    place: str
    accuracy: str
    margin: str
    link: str

    @property
    def sign(self) -> str:
        return SIGNS[self.outcome]

    @property
    def verdict(self) -> str:
        return VERDICT_WORDS[self.outcome].lower()

    @property
    def kind(self) -> str:
        return VERDICT_CLASSES[self.outcome]


def entry_of_card(card: Card, link: str) -> IndexEntry:
    """The row of one card; its accuracies are those of all seeds that it was judged with."""
    seed = card["claim"]["seed"]
    return _entry(card, card["verdict"], EMPTY_CELL if seed is None else str(seed), link)


def entries_of_audit(table: AuditTable, name: str, link: str) -> list[IndexEntry]:
    """A row for each method of the audit in the folder `name`."""
    return [
        _entry(
            row.cards[0],
            row.rulings[table.protocol].outcome,
            ", ".join(str(card["claim"]["seed"]) for card in row.cards if card["claim"]["seed"] is not None),
            link,
            f", audit {name}",
        )
        for row in table.rows
    ]


def _entry(card: Card, outcome: Outcome, seeds: str, link: str, where: str = "") -> IndexEntry:
    claim, statistics = card["claim"], card["statistics"]
    accuracies, losses = claim["headline_acc"], claim.get("losses")
    accuracy = f"{100 * fmean(accuracies):.1f} %" if accuracies else "not given"
    if losses and losses["headline"]:
        accuracy = f"loss {fmean(losses['headline']):.3f}"
    form = f"+.{digits_of(statistics['unit'])}f"
    ends = f" {interval(statistics['interval'], form)}" if statistics["interval"] else ""
    margin = "" if statistics["mean"] is None else f"{statistics['mean']:{form}} {statistics['unit']}{ends}"
    place = f"{claim['arch'].partition(':')[0]} on {claim['data'].partition(':')[0]}{where}"
    return IndexEntry(outcome, claim["method"], seeds, place, accuracy, margin or "not given", quote(link))


def index_page(title: str, entries: Sequence[IndexEntry], others: Sequence[tuple[str, str]] = ()) -> str:
    """The page; `others` are names and links of further pages, such as those of studies."""
    ordered = sorted(entries, key=lambda entry: (_ORDER.index(entry.outcome), entry.method, entry.seeds))
    outcomes = [entry.outcome for entry in ordered]
    page = (
        pages()
        .get_template("index.html")
        .render(
            title=title,
            sentence=f"{len(ordered)} judged: {counted_verdicts(outcomes)}." if ordered else "",
            heads=HEADS,
            explanation=explanation,
            entries=ordered,
            others=[(name, quote(link)) for name, link in others],
        )
    )
    return with_policy(page).replace("<title>", f"{GENERATOR}\n<title>", 1)
