"""The table of tuned learning rates: what every rate reached on held-out training samples, and the chosen ones."""

from __future__ import annotations

import textwrap

from walkback.core.tuning import TunedMethod, TuningTable
from walkback.report import latex, markdown
from walkback.report.overview import aligned_table
from walkback.report.sections import Section

_UNITS = {"accuracy": "accuracy", "nats": "loss in nats (smaller is better)"}
TUNING_TITLE = "Learning rates"


def tuning_section(table: TuningTable) -> Section:
    """A row for each method, a column for each learning rate."""
    heads = ("method", *(f"{rate:g}" for rate in table.grid), "chosen")
    return Section("tuning", TUNING_TITLE, "table", tuple(_row(row, table) for row in table.rows), heads)


def _row(row: TunedMethod, table: TuningTable) -> tuple[str, ...]:
    means = row.means
    cells = [f"{means[rate]:.4f}" if rate in means else "" for rate in table.grid]
    return (row.method, *cells, f"{row.chosen:g}" + (f" ({row.edge}: the best may lie outside)" if row.edge else ""))


def tuning_facts(table: TuningTable) -> str:
    """What the table shows and how the choice was made."""
    asked = table.asked
    seeds = (
        f"seed {asked.seeds[0]}" if len(asked.seeds) == 1 else f"mean over the seeds {', '.join(map(str, asked.seeds))}"
    )
    added = [rate for rate in table.grid if rate not in asked.lr]
    grid = (
        f"{', '.join(f'{rate:g}' for rate in added)} added because a best rate was at an edge" if added else "as asked"
    )
    unit = " and ".join(dict.fromkeys(_UNITS[row.unit] for row in table.rows))
    return (
        f"Held-out {unit}, {seeds}: trained without {asked.held_out:.0%} of the training samples, measured on these; "
        f"no test sample was used. The same learning rates for every row ({grid}); the judged runs have other seeds "
        "and train on all training samples with the chosen rate."
    )


def tuning_text(table: TuningTable) -> str:
    """The table as plain text."""
    facts = textwrap.wrap(tuning_facts(table), 100, subsequent_indent="  ")
    return "\n".join([TUNING_TITLE, *aligned_table(tuning_section(table)), *facts])


def tuning_markdown(table: TuningTable) -> str:
    """The table as Markdown."""
    lines = markdown.markdown_table(tuning_section(table))
    return "\n".join([*lines, "", f"- {markdown.markdown_escape(tuning_facts(table))}"]) + "\n"


def tuning_latex(table: TuningTable) -> str:
    """The table as a booktabs table."""
    return "\n".join([*latex.latex_table(tuning_section(table)), latex.breakable(tuning_facts(table)) + r"\par"]) + "\n"
