"""Fill pages with what stored studies say: tables, cells, findings and figures between marks.

example: walkback quote README.md docs/findings.md --results results/paper
         walkback quote README.md docs/findings.md --results results/paper --check

A page marks what it quotes, such as <!-- quote primary-audit/audit columns="method; accuracy; three" --> and
<!-- /quote -->; what stands between is written anew. RESULTS holds the studies' own folders with their study.json.
Nothing is trained or measured. --check writes nothing and exits with 1 where a page would change.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError, unknown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="Markdown pages with marks")
    parser.add_argument("--results", type=Path, default=Path("results/paper"), help="folder of conducted studies")
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")


def run(args: argparse.Namespace) -> int:
    from walkback.core.files import friendly_os_errors
    from walkback_papers.pages import update_pages
    from walkback_papers.quotes import fill

    @cache
    def study_report_of(name: str) -> dict[str, Any]:
        return _story(args.results, name)

    # All pages are read and filled before the first is written.
    filled: dict[Path, str] = {}
    for page in args.pages:
        with friendly_os_errors(page, "read"):
            old = page.read_text(encoding="utf-8")
        link = Path(os.path.relpath(args.results, page.parent)).as_posix()
        try:
            filled[page] = fill(old, study_report_of, link)
        except InputError as error:
            raise InputError(f"{page}: {error}") from error
    return update_pages(filled, check=args.check)


def _story(results: Path, name: str) -> dict[str, Any]:
    from walkback.report.study_pages import STUDY_FILE

    path = results / name / STUDY_FILE
    if not path.is_file():
        there = [each.parent.name for each in results.glob(f"*/{STUDY_FILE}")]
        if there:
            raise unknown("study", name, there)
        raise InputError(f"There are no studies in {results}. `walkback study all --out {results}` makes them.")
    study_report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return study_report
