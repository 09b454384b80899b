"""Several cards in one table: a row for each method, with the same cells in HTML, Markdown, LaTeX and plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.card import read_card
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL, UNNAMED
from walkback.judge.glossary import in_short
from walkback.report import latex, markdown
from walkback.report.captions import place_of, recipe_of
from walkback.report.cells import Cell
from walkback.report.overview_cells import CLAIMS, cells_of
from walkback.report.sections import Card, Section, note_text

_DECIDING_MARGINS = {
    METHOD_SHELL: "The margin over the frozen baseline",
    BP_SHELL: "The margin over the bp frozen baseline",
    UNNAMED: "The margin over a frozen baseline of unknown kind",
}
_ARROWS = {"up": " ↑", "down": " ↓", "": ""}


@dataclass(frozen=True)
class Column:
    """A column: its name, whether its cells are numbers, and whether larger (`up`) or smaller (`down`) is better."""

    name: str
    number: bool = False
    better: str = ""

    @property
    def head(self) -> str:
        """The name with its arrow."""
        return self.name + _ARROWS[self.better]


OVERVIEW_NUMBERS = (
    Column("method"),
    Column("seeds", number=True),
    Column("accuracy", number=True, better="up"),
    Column("frozen baseline", number=True),
    Column("bp frozen baseline", number=True),
    Column("over frozen, pp", number=True, better="up"),
    Column("over bp frozen, pp", number=True, better="up"),
    Column("growth (D1)", number=True, better="down"),
    Column("|g_L| @128", number=True, better="up"),
    Column("aggregate cosine Γ", number=True, better="up"),
    Column("z", number=True, better="up"),
)
_PARTS = {"Accuracy": 5, "Margins": 7, "Measurements": len(OVERVIEW_NUMBERS)}
"""The parts a wide table is split into: each part's name and end column; the verdicts are the last part."""
_FACTS_OF_SEVERAL_SEEDS = (
    "Several seeds: growth, |g_L| and z from the smallest to the largest; Γ as mean ± standard deviation (ddof = 1); "
    "a verdict is the worst of its seeds'; an alignment stands where it stands in every seed.",
    "Depth is judged over seeds and corrected (Holm) for the number of methods in the table.",
)


_FACTS_OF_LOSSES = (
    "Margins in nats: the frozen baseline's test loss minus the method's, in nats a token; for one seed the interval "
    "is over windows that do not overlap. Accuracies are the shares of tokens predicted rightly.",
)


@dataclass(frozen=True)
class Overview:
    """The table as cells, ready for layout."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]
    """What the columns mean; shown with the table in every format."""
    audit_table: AuditTable
    """The judged rows that the cells were made from."""

    def section(self, title: str, first: int, last: int, notes: bool = True) -> Section:
        """The method and the columns `first` to `last` (excluded)."""
        indices = (0, *range(max(1, first), last))
        rows = tuple(tuple(row[index].text for index in indices) for row in self.rows)
        heads = tuple(self.columns[index].head for index in indices)
        return Section("overview", title, "table", rows, heads, self.notes if notes else ())

    def parts(self) -> list[Section]:
        """The table split into narrower ones; the notes are below the measurements."""
        ends = {**_PARTS, "Verdicts": len(self.columns)}
        starts = [1, *ends.values()]
        return [
            self.section(title, first, last, notes=title == "Measurements")
            for first, (title, last) in zip(starts, ends.items(), strict=False)
        ]


def overview_text(cards: Sequence[Card]) -> str:
    """The table as plain text for a terminal, at most 100 characters wide where the methods' names allow it."""
    shown = overview(cards)
    parts = [line for part in shown.parts() for line in (*aligned_table(part), "")]
    texts = [*shown.facts, *(f"{subject}: {reason}" for subject, reason in shown.notes)]
    # A network's settings are one long word that users copy, so long words are not broken.
    wrapper = textwrap.TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    parts += [line for text in texts for line in wrapper.wrap(text)]
    return "\n".join(parts)


def aligned_table(section: Section) -> list[str]:
    """A table's lines with its columns aligned by spaces."""
    lines = [section.heads, *section.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(section.heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def overview_markdown(cards: Sequence[Card]) -> str:
    """The table as Markdown."""
    shown = overview(cards)
    lines = markdown.markdown_table(shown.section("Overview", 0, len(shown.columns)))
    return "\n".join([*lines[1:], "", *(f"- {markdown.markdown_escape(line)}" for line in shown.facts)]) + "\n"


def overview_latex(cards: Sequence[Card]) -> str:
    """The table as four booktabs tables (accuracies, margins, measurements, verdicts); one would not fit a page."""
    shown = overview(cards)
    name, text_column = r"p{0.16\linewidth}", r">{\raggedright\arraybackslash}p{%.2f\linewidth}"
    *numbers, verdicts = shown.parts()
    text_columns = len(verdicts.heads) - 1
    parts = [
        r"% Needs \usepackage{array,booktabs} and \usepackage[T1]{fontenc}.",
        "\\begingroup\\sloppy",
        *(line for part in numbers for line in latex.latex_table(part, name + "l" * (len(part.heads) - 1))),
        *latex.latex_table(verdicts, name + text_column % (0.76 / text_columns) * text_columns),
        *(f"{latex.breakable(line)}\\par" for line in shown.facts),
        "\\par\\endgroup",
    ]
    return "\n".join(parts) + "\n"


def overview(cards: Sequence[Card]) -> Overview:
    """The table of these cards, a row for each method; a damaged card is refused."""
    cards = [read_card(card) for card in cards]
    table = make_audit_table(cards)
    editions = tuple(table.rows[0].rulings)
    places = list(dict.fromkeys(row.place for row in table.rows))
    columns = OVERVIEW_NUMBERS + tuple(map(Column, (*(f"edition {name}" for name in editions), *CLAIMS)))
    rows = tuple(cells_of(row, named=len(places) > 1) for row in table.rows)
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            if cell.reason:
                reasons.setdefault((column.name, note_text(cell)), []).append(row[0].text)
    levels = " or ".join(sorted({f"{card['statistics']['confidence']:.0%}" for card in cards}))
    null_z = f"{cards[0]['thresholds']['null_z']:g}"
    deciding = " or ".join(dict.fromkeys(_DECIDING_MARGINS[card["claim"]["null"]] for card in cards))
    return Overview(
        columns=columns,
        rows=rows,
        notes=tuple((f"{name} of {', '.join(methods)}", text) for (name, text), methods in reasons.items()),
        facts=(
            f"All rows: {place_of(cards)}; {recipe_of(cards)}.",
            "Accuracy and frozen baselines: mean ± standard deviation over seeds (ddof = 1); one seed has no ±.",
            f"Frozen baseline: {in_short('frozen baseline')}. Bp frozen baseline: {in_short('bp frozen baseline')}.",
            "Over frozen, over bp frozen: accuracy minus that of the frozen baseline, with its "
            f"{levels} interval where there is one. {deciding} decides D3.",
            f"Growth (D1): {in_short('growth (D1)')}. |g_L|: {in_short('|g_L|')}. @128: {in_short('@128')}.",
            f"Aggregate cosine Γ: here deep_mean. {in_short('deep_mean')}. z: {in_short('z over the null')}; it "
            f"must be {null_z} or more for the alignment to stand.",
            *(_FACTS_OF_LOSSES if any(card["claim"].get("losses") for card in cards) else ()),
            '↑ larger is better, ↓ smaller is better. A number followed by "fails" fails its check.',
            *(_FACTS_OF_SEVERAL_SEEDS if any(len(row.cards) > 1 for row in table.rows) else ()),
        ),
        audit_table=table,
    )
