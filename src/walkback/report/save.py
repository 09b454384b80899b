"""Write the files of a report: the card, the pages made from it, and the measurements it was judged from."""

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
    """Write report.json and report.FORM for each of `forms`; each file is replaced as a whole or left as it was."""
    card = report.to_json()
    # Every text is made before any is written, and the card is written last, so no page is older than its card.
    texts = {folder / f"report.{form}": render(card, form) for form in forms}
    texts[folder / CARD] = json.dumps(card, allow_nan=False)
    with friendly_os_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        write_atomic(path, text.encode())
    return [folder / CARD, *list(texts)[:-1]]


def save_report(report: DiagnosticReport, folder: str | Path) -> list[Path]:
    """Write the card, its pages and the measurements into `folder`; return the paths."""
    target = Path(folder)
    written = save_card(report, target)
    report.measurements.save(target / MEASUREMENTS)
    return [*written, target / MEASUREMENTS]
