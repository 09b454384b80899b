"""A run in a notebook: its curves, its facts, and rows for a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from walkback.report.figures import canvas_of
from walkback.report.notebook import drawn_html, fragment
from walkback.report.study_report import Figure, Plot, Series

_CURVES = (
    ("Training loss", "loss", {"loss": "training"}),
    ("Accuracy", "accuracy", {"test_acc": "test", "train_acc": "training"}),
    ("Growth (D1)", "largest |h_l+1| / |h_l|", {"growth": "growth"}),
    ("Deepest reference gradient (D2)", "|g_L| @128", {"grad_top": "|g_L|"}),
)
"""Title, name of the axis, and the labels of the keys of the log."""
_DECADE = 10
"""Values that span more than this factor get a logarithmic axis."""


def run_figure(name: str, log: Sequence[Mapping[str, Any]]) -> Figure:
    """The logged curves of a run by epoch; quantities that were not logged are left out."""
    epochs = [row["epoch"] for row in log]
    plots = []
    for title, axis, labels in _CURVES:
        curves = {label: [row.get(key) for row in log] for key, label in labels.items()}
        series = tuple(
            Series(label, epochs, values, mark="both")
            for label, values in curves.items()
            if any(value is not None for value in values)
        )
        if series:
            known = [value for values in curves.values() for value in values if value is not None]
            is_log = min(known) > 0 and max(known) > _DECADE * min(known)
            plots.append(Plot(title, "epoch", axis, series, y_log=is_log))
    return Figure("run", name, tuple(plots), "", columns=2)


def run_plot(name: str, log: Sequence[Mapping[str, Any]]) -> Any:
    """The curves as a matplotlib figure."""
    return canvas_of(run_figure(name, log))


def run_words(name: str, record: Mapping[str, Any]) -> str:
    """A run in one line: its name, its method and how it ended."""
    result = record.get("result") or {}
    ends = [f"test {key} {result[f'test_{key}']:.3f}" for key in ("acc", "loss") if f"test_{key}" in result]
    facts = [str(record["method"]), f"seed {record['seed']}", str(record["status"]), *ends]
    return f"{name}: {', '.join(facts)}"


def run_html(name: str, record: Mapping[str, Any], log: Sequence[Mapping[str, Any]]) -> str:
    """The line and the curves."""
    picture = drawn_html(run_figure(name, log)) if log else ""
    return fragment((), title=run_words(name, record), picture=picture)


def log_rows(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One dictionary for each epoch, with the numbers that are one per epoch."""
    return [{key: value for key, value in row.items() if not isinstance(value, list)} for row in log]
