"""Several cards in one table: a row for each, the same cells in HTML, Markdown and LaTeX."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from walkback.core.errors import InputError
from walkback.judge.card import read_card
from walkback.judge.panel import Row, Ruling, panel
from walkback.render import latex, markdown
from walkback.render.cells import Cell, interval, number
from walkback.render.html import pages
from walkback.render.sections import VERDICTS, Card, Section

CLAIMS = ("alignment", "depth")
BETTER = {"up": " ↑", "down": " ↓", "": ""}


@dataclass(frozen=True)
class Column:
    """A head; whether numbers stand below it; and which of them are better."""

    name: str
    number: bool = False
    better: str = ""

    @property
    def head(self) -> str:
        return self.name + BETTER[self.better]


NUMBERS = (
    Column("method"),
    Column("seeds", number=True),
    Column("accuracy", number=True, better="up"),
    Column("shell", number=True),
    Column("bp shell", number=True),
    Column("margin, pp", number=True, better="up"),
    Column("growth", number=True, better="down"),
    Column("|g_L| @128", number=True, better="up"),
    Column("deep_mean", number=True, better="up"),
)
SEVERAL = (
    "Of several seeds: growth and |g_L| from the smallest to the largest; deep_mean as mean ± standard deviation "
    "(ddof = 1); a verdict is the worst of its seeds'; an alignment stands where it stands in every seed.",
    "Depth is judged over seeds and corrected (Holm) for the number of methods in the table.",
)
MEASURED = 6
"""The first column that is measured inside the network."""


@dataclass(frozen=True)
class Overview:
    """The table, ready to be laid out."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]
    """What the columns are; said with every table, wherever it is quoted."""
    cards: tuple[tuple[Card, ...], ...]
    """The cards behind each row."""

    def section(self, title: str, first: int, last: int, notes: bool = True) -> Section:
        """The method and the columns `first` to `last`."""
        at = (0, *range(max(1, first), last))
        rows = tuple(tuple(row[index].text for index in at) for row in self.rows)
        heads = tuple(self.columns[index].head for index in at)
        return Section("overview", title, "table", rows, heads, self.notes if notes else ())


def overview_page(cards: Sequence[Card], title: str, links: Sequence[str] = ()) -> str:
    """One page; `links` are the cards' own pages, in the same order, as paths relative to this one."""
    if links and len(links) != len(cards):
        raise InputError(f"Got {len(links)} links for {len(cards)} cards; expected one for each card, in their order.")
    shown = overview(cards)
    targets = {card["hash"]: quote(link) for card, link in zip(cards, links or [""] * len(cards), strict=True)}
    # Long method strings may be broken between their settings.
    names = [Markup("<wbr>").join(re.split(r"(?<=[,:])", row[0].text)) for row in shown.rows]
    linked = [[(card["claim"]["seed"], targets[card["hash"]]) for card in row] for row in shown.cards]
    return pages().get_template("overview.html").render(title=title, table=shown, links=linked, names=names)


def overview_text(cards: Sequence[Card]) -> str:
    """The same for a terminal: three tables of at most 100 columns where the methods' names allow it."""
    shown = overview(cards)
    first, last = len(NUMBERS), len(shown.columns)
    parts = [
        *_aligned(shown.section("", 0, MEASURED)),
        "",
        *_aligned(shown.section("", MEASURED, first)),
        "",
        *_aligned(shown.section("", first, last)),
        "",
        *(line for fact in shown.facts for line in textwrap.wrap(fact, 100, subsequent_indent="  ")),
        *(line for a, why in shown.notes for line in textwrap.wrap(f"{a}: {why}", 100, subsequent_indent="  ")),
    ]
    return "\n".join(parts)


def _aligned(section: Section) -> list[str]:
    lines = [section.heads, *section.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(section.heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def overview_markdown(cards: Sequence[Card]) -> str:
    """The table as Markdown."""
    shown = overview(cards)
    lines = markdown.laid_out(shown.section("Overview", 0, len(shown.columns)))
    return "\n".join([*lines[1:], "", *(f"- {markdown.escape(line)}" for line in shown.facts)]) + "\n"


def overview_latex(cards: Sequence[Card]) -> str:
    """The same as three booktabs tables: accuracies, measurements, and what they come to. One would not fit a page."""
    shown = overview(cards)
    name, words = r"p{0.16\linewidth}", r">{\raggedright\arraybackslash}p{%.2f\linewidth}"
    last = len(shown.columns)
    texts = words % (0.76 / (last - len(NUMBERS))) * (last - len(NUMBERS))
    parts = [
        r"% Needs \usepackage{array,booktabs} and \usepackage[T1]{fontenc}.",
        "\\begingroup\\sloppy",
        *latex.laid_out(shown.section("Accuracy", 0, MEASURED, notes=False), name + "l" * (MEASURED - 1)),
        *latex.laid_out(shown.section("Measurements", MEASURED, len(NUMBERS)), name + "l" * (len(NUMBERS) - MEASURED)),
        *latex.laid_out(shown.section("Verdicts", len(NUMBERS), last, notes=False), name + texts),
        *(f"{latex.breakable(line)}\\par" for line in shown.facts),
        "\\par\\endgroup",
    ]
    return "\n".join(parts) + "\n"


def overview(cards: Sequence[Card]) -> Overview:
    """Every cell of the table, a row for each method; a damaged card is refused."""
    cards = [read_card(card) for card in cards]
    table = panel(cards)
    editions = tuple(table.rows[0].rulings)
    places = list(dict.fromkeys(row.place for row in table.rows))
    columns = NUMBERS + tuple(map(Column, (*(f"edition {name}" for name in editions), *CLAIMS)))
    rows = tuple(_row(row, named=len(places) > 1) for row in table.rows)
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            if cell.reason:
                said = cell.reason if cell.value is not None else cell.full
                reasons.setdefault((column.name, said), []).append(row[0].text)
    levels = " or ".join(sorted({f"{card['statistics']['confidence']:.0%}" for card in cards}))
    return Overview(
        columns=columns,
        rows=rows,
        notes=tuple((f"{name} of {', '.join(methods)}", said) for (name, said), methods in reasons.items()),
        facts=(
            *([f"All of them: {places[0]}."] if len(places) == 1 else []),
            "Accuracy and shells: mean ± standard deviation over seeds (ddof = 1); one seed has no ±.",
            "Shell: blocks frozen at random, the rest trained by the method itself; bp shell: the rest by backprop.",
            f"Margin: accuracy over the shell that decides D3, with its {levels} interval where there is one.",
            "Growth: the largest ratio of hidden norms from one layer to the next (D1). |g_L| @128: the deepest "
            "reference gradient (D2). deep_mean: mean cosine over layers that train a block.",
            "↑ larger is better, ↓ smaller is better. FAIL: the check on that number is raised.",
            *(SEVERAL if any(len(row.cards) > 1 for row in table.rows) else ()),
        ),
        cards=tuple(row.cards for row in table.rows),
    )


def _row(row: Row, named: bool) -> tuple[Cell, ...]:
    # Accuracies and their margin are over all seeds and the same on each seed's card.
    card = row.cards[0]
    claim, frozen = card["claim"], card["claim"]["frozen"]
    seeds = len(claim["headline_acc"])
    return (
        Cell(f"{row.method} ({row.place})" if named else row.method),
        Cell(str(seeds), seeds),
        _mean(claim["headline_acc"]),
        _mean(frozen.get("method_shell")) if "unnamed" not in frozen else _unnamed(frozen["unnamed"]),
        _mean(frozen.get("bp_shell")),
        _margin(card, _check(card, "D3")),
        _over_seeds([_check(card, "D1") for card in row.cards]),
        _over_seeds([_check(card, "D2") for card in row.cards]),
        _mean_number([card["aggregates"]["deep_mean"] for card in row.cards]),
        *(_ruled(ruling) for ruling in row.rulings.values()),
        *(Cell(row.claims[name].shown) for name in CLAIMS),
    )


def _check(card: Card, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(check for check in card["checks"] if check["id"] == name)
    return found


def _over_seeds(checks: Sequence[Mapping[str, Any]]) -> Cell:
    """One check in every seed: the range of its values, and in how many it is raised."""
    cells = [_checked(check) for check in checks]
    bad = [cell for cell in cells if cell.value is None]
    if len(cells) == 1 or bad:
        return (bad or cells)[0]
    values = [check["value"] for check in checks]
    raised = sum(check["shown"] == "FAIL" for check in checks)
    ends = list(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))
    word = f" FAIL in {raised} of {len(cells)}" if raised else ""
    worst_value = max(values) if checks[0]["side"] == "above" else min(values)
    return Cell(" to ".join(ends) + word, worst_value)


def _mean_number(given: Sequence[Mapping[str, Any]]) -> Cell:
    cells = [number(each, "+.3f") for each in given]
    bad = [cell for cell in cells if cell.value is None]
    if len(cells) == 1 or bad:
        return (bad or cells)[0]
    values = [each["value"] for each in given]
    return Cell(f"{fmean(values):+.3f} ± {stdev(values):.3f}", fmean(values), cells[0].reason)


def _ruled(ruling: Ruling) -> Cell:
    by = f" ({', '.join(ruling.decided_by)})" if ruling.decided_by else ""
    share = "" if ruling.like == ruling.seeds else f" in {ruling.like} of {ruling.seeds} seeds"
    return Cell(f"{VERDICTS[ruling.outcome]}{by}{share}")


def _mean(seeds: Sequence[float] | None) -> Cell:
    if not seeds:
        return Cell("not given")
    spread = f" ± {stdev(seeds):.3f}" if len(seeds) > 1 else ""
    return Cell(f"{fmean(seeds):.3f}{spread}", fmean(seeds))


def _unnamed(seeds: Sequence[float]) -> Cell:
    given = _mean(seeds)
    return Cell(given.text, given.value, "it was not said which shell this is")


def _margin(card: Card, d3: Card) -> Cell:
    found, null = card["statistics"], card["claim"]["null"]
    if found["mean"] is None or d3["shown"] in ("INVALID", "NOT MEASURED"):
        return Cell("INVALID" if d3["shown"] == "INVALID" else "NOT MEASURED", None, d3["reason"])
    ends = f" {interval(found['interval'], '+.2f')}" if found["interval"] else ""
    against = f"over {null}" if null != "method_shell" else ""
    reason = d3["reason"] if d3["shown"] == "NOT INFORMATIVE" else against
    return Cell(f"{found['mean']:+.2f}{ends}{_word(d3)}", found["mean"], reason)


def _checked(check: Mapping[str, Any]) -> Cell:
    if check["shown"] in ("INVALID", "NOT MEASURED"):
        return Cell(check["shown"], None, check["reason"])
    if check["value"] is None:
        return Cell(f"not finite{_word(check)}", None, check["reason"])
    return Cell(f"{check['value']:.3g}{_word(check)}", check["value"])


def _word(check: Mapping[str, Any]) -> str:
    """A number is not shown without what was said of it; where nothing is wrong there is nothing to say."""
    return "" if check["shown"] == "PASS" else f" {check['shown']}"
