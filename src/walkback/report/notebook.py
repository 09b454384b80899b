"""Reports and audits in a notebook: a short HTML fragment, a picture, and rows for a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from walkback.core.errors import InputError
from walkback.judge.audit_table import AuditTable
from walkback.judge.editions import Outcome
from walkback.judge.number import Number
from walkback.report.accuracy_plot import AccuracyMark, accuracy_name, marks_of
from walkback.report.audit_page.sentence import audit_sentence
from walkback.report.cells import tidy
from walkback.report.cosine_plot import block_marks
from walkback.report.figures import canvas_of, draw
from walkback.report.html import SIGNS, pages
from walkback.report.sections import VERDICT_WORDS
from walkback.report.study_report import Figure, Plot, Series
from walkback.report.verdict_lines import claims_text, facts_of, reasons_of

if TYPE_CHECKING:
    from walkback.judge.report import DiagnosticReport


@dataclass(frozen=True)
class _Row:
    outcome: Outcome
    title: str
    facts: str
    lines: tuple[str, ...]

    @property
    def sign(self) -> str:
        return SIGNS[self.outcome]

    @property
    def verdict(self) -> str:
        return VERDICT_WORDS[self.outcome].lower()


def report_html(report: DiagnosticReport) -> str:
    """Verdict, claims with their reasons, checks that fail, and the picture of a report."""
    claims = [f"{claim.question} {claim.shown}: {claim.reason}" for claim in report.claims.values()]
    failing = [f"{name} fails: {flag.reason}" for name, flag in report.flags.items() if flag.truth]
    editions = [f"edition {name}: {found.outcome.replace('_', ' ')}" for name, found in report.verdicts.items()]
    lines = [*claims, *failing, "; ".join(editions)]
    row = _Row(report.verdict, report.method_name or "model", "", tuple(map(tidy, lines)))
    return fragment([row], picture=drawn_html(report_figure(report)))


def audit_html(table: AuditTable, page: str) -> str:
    """A verdict, the main numbers, the claims and the reasons for each method of an audit."""
    rows = [
        _Row(
            row.rulings[table.protocol].outcome,
            row.method,
            ", ".join(facts_of(row)),
            (claims_text(row.claims), *map(tidy, reasons_of(row, table.protocol))),
        )
        for row in table.rows
    ]
    return fragment(rows, title=audit_sentence(table), picture=drawn_html(audit_figure(table)), page=page)


def fragment(rows: Sequence[_Row], title: str = "", picture: str = "", page: str = "") -> str:
    """Rows of verdicts and a picture as a fragment of HTML."""
    return pages().get_template("notebook.html").render(rows=rows, title=title, picture=picture, page=page)


def drawn_html(figure: Figure) -> Markup:
    """The figure as inline SVG, no wider than the notebook."""
    drawn = draw(figure, "svg").decode()
    return Markup(drawn[drawn.index("<svg") :].replace("<svg", '<svg style="max-width: 100%; height: auto"', 1))


def audit_figure(table: AuditTable) -> Figure:
    """Accuracy of each method beside its frozen baselines, and the cosine of each block's credit."""
    marks = [{mark.lane: mark for mark in marks_of(row.cards[0])} for row in table.rows]
    places = range(len(table.rows))
    accuracies = tuple(
        Series(
            words,
            places,
            [found[lane].mean if lane in found else None for found in marks],
            low=[_end(found.get(lane), 0) for found in marks],
            high=[_end(found.get(lane), 1) for found in marks],
            mark="points",
        )
        for lane, words in _LANES.items()
        if any(lane in found for found in marks)
    )
    first = table.rows[0].cards[0]
    names = _short_names([row.method for row in table.rows])
    plots = [Plot("Do the trained blocks help?", "", accuracy_name(first), accuracies, ticks=tuple(names))]
    credits = [
        Series(name, [mark.index for mark in found], [mark.mean for mark in found], mark="both")
        for name, row in zip(names, table.rows, strict=True)
        if (found := block_marks(row.cards))
    ]
    if credits:
        plots.append(Plot("Credit of each block", "block", "cosine with the gradient", tuple(credits)))
    return Figure("audit", "Audit", tuple(plots), "", columns=2)


def plot_audit(table: AuditTable) -> Any:
    """The picture of an audit as a matplotlib figure."""
    return canvas_of(audit_figure(table))


def _short_names(methods: Sequence[str]) -> list[str]:
    """Names of methods that are short enough for an axis; the text has them in full. Those that become alike are
    numbered."""
    cut = [name if len(name) <= _NAME else f"{name[: _NAME - 1]}…" for name in methods]
    return [f"{name}{cut[:at].count(name) + 1}" if cut.count(name) > 1 else name for at, name in enumerate(cut)]


_NAME = 10
"""The longest name of a method along an axis, in letters."""
_LANES = {"own": "trained", "frozen": "blocks frozen", "bp frozen": "blocks frozen, rest by backprop"}


def _end(mark: AccuracyMark | None, side: int) -> float | None:
    """One end of an interval; the mean where there is none."""
    return None if mark is None else mark.mean if mark.interval is None else mark.interval[side]


def plot_report(report: DiagnosticReport) -> Any:
    """The picture of a report as a matplotlib figure."""
    return canvas_of(report_figure(report))


def report_figure(report: DiagnosticReport) -> Figure:
    """Norms and reference gradients of every state, and the cosine of every block's credit beside its null."""
    layers, blocks, t = report.quantities.layers, report.quantities.blocks, report.thresholds
    states = range(len(layers))
    plots = [
        Plot(
            "Hidden norms", "hidden state l", "mean ‖h_l‖", (_line("state", states, [x.hidden_norm for x in layers]),)
        ),
        Plot(
            "Reference gradients",
            "hidden state l",
            "mean ‖g_l‖ @128",
            (_line("state", states, [x.grad_norm_128 for x in layers]),),
            y_log=True,
            levels={"D2 floor": t.g_norm_floor},
        ),
    ]
    if any(block.used_cos.ok for block in blocks):
        widths = [
            t.null_z * abs(block.used_cos.known / block.used_z.known)
            if block.used_cos.ok and block.used_z.ok and block.used_z.known
            else None
            for block in blocks
        ]
        places = range(len(blocks))
        null = Series("null", places, [0.0] * len(blocks), low=[None if w is None else -w for w in widths], high=widths)
        credit = _line("credit", places, [block.used_cos for block in blocks])
        plots.append(Plot("Credit of each block", "block", "cosine with the gradient", (credit, null)))
    name = report.method_name or "model"
    return Figure("report", name, tuple(plots), "", columns=3)


def _line(label: str, x: Sequence[int], numbers: Sequence[Number]) -> Series:
    return Series(label, x, [number.value if number.ok else None for number in numbers], mark="both")


def layer_rows(report: DiagnosticReport) -> list[dict[str, Any]]:
    """One dictionary for each hidden state; numbers that may not be used are None."""
    return [
        {
            "layer": layer.index,
            "hidden_norm": _usable(layer.hidden_norm),
            "grad_norm_128": _usable(layer.grad_norm_128),
            "direction": layer.direction.status,
            "credit_cos": None if layer.credit is None else _usable(layer.credit.cos),
            "credit_z": None if layer.credit is None else _usable(layer.credit.z),
        }
        for layer in report.quantities.layers
    ]


def method_rows(table: AuditTable) -> list[dict[str, Any]]:
    """One dictionary for each method of an audit."""
    return [
        {
            "method": row.method,
            "arch": row.arch,
            "data": row.data,
            "seeds": len(row.cards),
            "verdict": row.rulings[table.protocol].outcome,
            **{f"edition_{name}": ruling.outcome for name, ruling in row.rulings.items()},
            **{name: claim.outcome for name, claim in row.claims.items()},
            **_numbers(row.cards[0]),
        }
        for row in table.rows
    ]


def _numbers(card: Mapping[str, Any]) -> dict[str, Any]:
    accuracies = card["claim"]["headline_acc"]
    return {
        "accuracy": sum(accuracies) / len(accuracies) if accuracies else None,
        **{check["id"]: check["value"] for check in card["checks"]},
    }


def _usable(number: Number) -> float | None:
    return number.value if number.ok else None


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows as a pandas data frame."""
    try:
        import pandas
    except ImportError as error:
        raise InputError("to_frame() needs pandas, which is not installed: pip install pandas.") from error
    return pandas.DataFrame(list(rows))
