"""An audit's pages, written from cards and training logs alone; no model is read and no torch is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from walkback.core.files import write_atomic
from walkback.core.reading.json_text import read_object
from walkback.core.reading.regular_files import fault_of
from walkback.core.reading.schema import Schema, check_schema
from walkback.core.tuning import TuningTable, setting_digest
from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.card import read_card
from walkback.report.audit_page.page import audit_page
from walkback.report.html import html
from walkback.report.overview import overview_latex, overview_markdown
from walkback.report.tuning import tuning_latex, tuning_markdown
from walkback.runs import store
from walkback.runs.tuning_tables import read_tables

OVERVIEW = "audit"
OVERVIEW_FORMATS = ("html", "md", "tex", "json")


def write_overview(
    found: AuditTable,
    runs: Path,
    folder: Path,
    forms: Sequence[str] = OVERVIEW_FORMATS,
    links: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the overview into `folder`. `runs` is the folder of the training logs; `links` maps a run's name to
    its card's page."""
    cards = [card for row in found.rows for card in row.cards]
    names = [str(card["provenance"]["run"]) for card in cards]
    targets = [links.get(name, "") if links is not None else f"{name}/report.html" for name in names]
    settings = {setting_digest(card["provenance"].get("config") or {}) for card in cards}
    tuning = [table for setting, table in read_tables(runs).items() if setting in settings]
    make = {
        "html": lambda: audit_page(cards, "Audit", targets, [log_of(runs / name) for name in names], tuning),
        "md": lambda: "\n".join([overview_markdown(cards), *map(tuning_markdown, tuning)]),
        "tex": lambda: "\n".join([overview_latex(cards), *map(tuning_latex, tuning)]),
        "json": lambda: json.dumps(overview_json(found, tuning), allow_nan=False),
    }
    # Everything is rendered before anything is written.
    texts = {folder / f"{OVERVIEW}.{form}": make[form]() for form in forms}
    if "html" in forms:
        pages = {folder / target: card for card, target in zip(cards, targets, strict=True) if target}
        # The cards' pages are written again, with links to this audit.
        back = {page: os.path.relpath(folder / f"{OVERVIEW}.html", page.parent) for page in pages if page.is_file()}
        texts |= {page: html(pages[page], Path(link).as_posix()) for page, link in back.items()}
    for path, text in texts.items():
        write_atomic(path, text.encode())
    return [folder / f"{OVERVIEW}.{form}" for form in forms]


def overview_json(found: AuditTable, tuning: Sequence[TuningTable]) -> dict[str, Any]:
    """The overview as JSON; `tuning` is there where learning rates were tuned."""
    return {**found.to_json(), **({"tuning": [table.to_json() for table in tuning]} if tuning else {})}


def read_overview(folder: Path) -> AuditTable:
    """The table of an audit that was written before."""
    path = folder / f"{OVERVIEW}.json"
    fault = fault_of(path, "It is no audit's overview: `walkback audit --resume` writes it again.")
    document = read_object(path, fault)
    check_schema(document, _OVERVIEW, fault)
    return make_audit_table([read_card(card) for row in document["rows"] for card in row["cards"]])


_ROW: Schema = {
    "type": "object",
    "required": ["cards"],
    "properties": {"cards": {"type": "array", "items": {"type": "object"}}},
}
_OVERVIEW: Schema = {"required": ["rows"], "properties": {"rows": {"type": "array", "items": _ROW}}}


def log_of(path: Path) -> list[dict[str, Any]]:
    """A run's training log; empty if the run is missing."""
    if not (path / store.RECORD).is_file():
        return []
    return store.open_run(path, without=(store.MODEL, store.RULE)).log()
