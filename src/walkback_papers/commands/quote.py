"""Fill marked places of Markdown pages with tables, cells, findings and figures of stored studies.

example: walkback quote README.md docs/findings.md --results results/paper
         walkback quote README.md docs/findings.md --results results/paper --check

A page marks what it quotes, such as <!-- quote primary-audit/audit columns="method; accuracy; three" --> and
<!-- /quote -->; the text between them is replaced. RESULTS holds one folder per study with its study.json.
Nothing is trained or measured. --check writes nothing and exits with 1 if a page would change.
"""

from __future__ import annotations

import argparse
import os
from functools import cache
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError, unknown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="Markdown pages with marks")
    parser.add_argument("--results", type=Path, default=Path("results/paper"), help="folder of the studies' results")
    parser.add_argument("--check", action="store_true", help="only check whether the pages are up to date")


def run(args: argparse.Namespace) -> int:
    from walkback.core.files import friendly_os_errors
    from walkback_papers.pages import update_pages
    from walkback_papers.quotes import fill_quotations

    @cache
    def load_study(name: str) -> dict[str, Any]:
        return _stored_study(args.results, name)

    # All pages are read and filled before the first is written.
    filled: dict[Path, str] = {}
    for page in args.pages:
        with friendly_os_errors(page, "read"):
            old = page.read_text(encoding="utf-8")
        link = Path(os.path.relpath(args.results, page.parent)).as_posix()
        try:
            filled[page] = fill_quotations(old, load_study, link)
        except InputError as error:
            raise InputError(f"{page}: {error}") from error
    return update_pages(filled, check=args.check)


def _stored_study(results: Path, name: str) -> dict[str, Any]:
    from walkback.core.reading.json_text import read_object
    from walkback.core.reading.regular_files import fault_of
    from walkback.report.study_pages import STUDY_FILE
    from walkback.report.study_report import check_stored_study

    path = results / name / STUDY_FILE
    if not path.is_file():
        known = [each.parent.name for each in results.glob(f"*/{STUDY_FILE}")]
        if known:
            raise unknown("study", name, known)
        raise InputError(f"There are no studies in {results}. `walkback study all --out {results}` makes them.")
    fault = fault_of(path, "Write the study's pages again with `walkback study`.")
    study = read_object(path, fault)
    check_stored_study(study, fault)
    return study
