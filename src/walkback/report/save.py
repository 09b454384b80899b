"""Writing a report's files: the card, the pages made from it, and the measurements it was judged from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from walkback.core.files import friendly_os_errors, write_atomic
from walkback.report.formats import PAGES, render

if TYPE_CHECKING:
    from walkback.judge.report import DiagnosticReport

CARD, MEASUREMENTS = "report.json", "measurements.npz"


def save_card(report: DiagnosticReport, folder: Path, forms: Sequence[str] = PAGES) -> list[Path]:
    """Write report.json and report.FORM for each of `forms`; each file is replaced whole or left as it was."""
    card = report.to_json()
    # All is made before anything is written, and the card comes last: pages never lag behind it.
    texts = {folder / f"report.{form}": render(card, form) for form in forms}
    texts[folder / CARD] = json.dumps(card, allow_nan=False)
    with friendly_os_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        write_atomic(path, text.encode())
    return [folder / CARD, *list(texts)[:-1]]


def save_report(report: DiagnosticReport, folder: str | Path) -> list[Path]:
    """Write everything known of a report into `folder`, and say which files that are."""
    where = Path(folder)
    written = save_card(report, where)
    report.measurements.save(where / MEASUREMENTS)
    return [*written, where / MEASUREMENTS]
