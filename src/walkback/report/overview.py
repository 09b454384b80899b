"""Several cards in one table: a row for each, the same cells in HTML, Markdown and LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.card import read_card
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL, UNNAMED
from walkback.report import latex, markdown
from walkback.report.captions import place_of, recipe_of
from walkback.report.cells import Cell
from walkback.report.overview_cells import CLAIMS, cells_of
from walkback.report.sections import Card, Section

DECIDES = {METHOD_SHELL: "The margin over the shell", BP_SHELL: "The margin over the bp shell"}
DECIDES[UNNAMED] = "The margin over a shell that was not named"
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


OVERVIEW_NUMBERS = (
    Column("method"),
    Column("seeds", number=True),
    Column("accuracy", number=True, better="up"),
    Column("shell", number=True),
    Column("bp shell", number=True),
    Column("over shell, pp", number=True, better="up"),
    Column("over bp shell, pp", number=True, better="up"),
    Column("growth", number=True, better="down"),
    Column("|g_L| @128", number=True, better="up"),
    Column("deep_mean", number=True, better="up"),
    Column("z", number=True, better="up"),
)
_PARTS = {"Accuracy": 5, "Margins": 7, "Measurements": len(OVERVIEW_NUMBERS)}
"""Where the table is cut if it is too wide: each part's name and its end; verdicts come last."""
_SEVERAL = (
    "Of several seeds: growth, |g_L| and z from the smallest to the largest; deep_mean as mean ± standard deviation "
    "(ddof = 1); a verdict is the worst of its seeds'; an alignment stands where it stands in every seed.",
    "Depth is judged over seeds and corrected (Holm) for the number of methods in the table.",
)


@dataclass(frozen=True)
class Overview:
    """The table, ready to be laid out."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]
    """What the columns are; said with every table, wherever it is quoted."""
    audit_table: AuditTable
    """What the rows were made from."""

    def section(self, title: str, first: int, last: int, notes: bool = True) -> Section:
        """The method and the columns `first` to `last`."""
        at = (0, *range(max(1, first), last))
        rows = tuple(tuple(row[index].text for index in at) for row in self.rows)
        heads = tuple(self.columns[index].head for index in at)
        return Section("overview", title, "table", rows, heads, self.notes if notes else ())

    def parts(self) -> list[Section]:
        """The table cut into narrower ones; the reasons stand below the measurements."""
        ends = {**_PARTS, "Verdicts": len(self.columns)}
        starts = [1, *ends.values()]
        return [
            self.section(title, first, last, notes=title == "Measurements")
            for first, (title, last) in zip(starts, ends.items(), strict=False)
        ]


def overview_text(cards: Sequence[Card]) -> str:
    """The same for a terminal: tables of at most 100 columns where the methods' names allow it."""
    shown = overview(cards)
    parts = [line for part in shown.parts() for line in (*_aligned(part), "")]
    said = [*shown.facts, *(f"{about}: {why}" for about, why in shown.notes)]
    # A network's settings are one long word, which is copied more often than read: it is not cut.
    lines = textwrap.TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    parts += [line for words in said for line in lines.wrap(words)]
    return "\n".join(parts)


def _aligned(section: Section) -> list[str]:
    lines = [section.heads, *section.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(section.heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def overview_markdown(cards: Sequence[Card]) -> str:
    """The table as Markdown."""
    shown = overview(cards)
    lines = markdown.markdown_table(shown.section("Overview", 0, len(shown.columns)))
    return "\n".join([*lines[1:], "", *(f"- {markdown.markdown_escape(line)}" for line in shown.facts)]) + "\n"


def overview_latex(cards: Sequence[Card]) -> str:
    """The same as booktabs tables: accuracies, margins, measurements, verdicts. One would not fit a page."""
    shown = overview(cards)
    name, words = r"p{0.16\linewidth}", r">{\raggedright\arraybackslash}p{%.2f\linewidth}"
    *numbers, verdicts = shown.parts()
    texts = len(verdicts.heads) - 1
    parts = [
        r"% Needs \usepackage{array,booktabs} and \usepackage[T1]{fontenc}.",
        "\\begingroup\\sloppy",
        *(line for part in numbers for line in latex.latex_table(part, name + "l" * (len(part.heads) - 1))),
        *latex.latex_table(verdicts, name + words % (0.76 / texts) * texts),
        *(f"{latex.breakable(line)}\\par" for line in shown.facts),
        "\\par\\endgroup",
    ]
    return "\n".join(parts) + "\n"


def overview(cards: Sequence[Card]) -> Overview:
    """Every cell of the table, a row for each method; a damaged card is refused."""
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
                said = cell.reason if cell.value is not None else cell.full
                reasons.setdefault((column.name, said), []).append(row[0].text)
    levels = " or ".join(sorted({f"{card['statistics']['confidence']:.0%}" for card in cards}))
    nulls = f"{cards[0]['thresholds']['null_z']:g}"
    return Overview(
        columns=columns,
        rows=rows,
        notes=tuple((f"{name} of {', '.join(methods)}", said) for (name, said), methods in reasons.items()),
        facts=(
            f"All of them: {place_of(cards)}; {recipe_of(cards)}.",
            "Accuracy and shells: mean ± standard deviation over seeds (ddof = 1); one seed has no ±.",
            "Shell: blocks frozen at random, the rest trained by the method itself; bp shell: the rest by backprop.",
            f"Over shell, over bp shell: accuracy less that of the shell, with its {levels} interval where there is "
            f"one. {' or '.join(dict.fromkeys(DECIDES[card['claim']['null']] for card in cards))} decides D3.",
            "Growth: the largest ratio of hidden norms from one layer to the next (D1). |g_L| @128: the deepest "
            "reference gradient (D2). deep_mean: mean cosine over layers that train a block; z: how many standard "
            f"deviations of randomly rotated credit it lies above its null, {nulls} or more to stand.",
            "↑ larger is better, ↓ smaller is better. FAIL: the check on that number is raised.",
            *(_SEVERAL if any(len(row.cards) > 1 for row in table.rows) else ()),
        ),
        audit_table=table,
    )
