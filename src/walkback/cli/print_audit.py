"""Print an audit in a terminal: verdicts and reasons, or with --full the whole table."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walkback.auditing.audit import Audit


def add_printing_arguments(
    parser: argparse.ArgumentParser, json_help: str = "print the overview as one JSON object"
) -> None:
    parser.add_argument("--full", action="store_true", help="print the whole table in place of the summary")
    parser.add_argument("--json", action="store_true", help=json_help)


def print_audit(audit: Audit, full: bool) -> None:
    """Print the summary or the whole table, and where the page is."""
    from walkback.report.verdict_lines import ASCII_MARKS, MARKS

    marks = MARKS if _can_print("".join(MARKS.values())) else ASCII_MARKS
    print(audit.full_text if full else audit.summary(marks))
    print(f"Report: {audit.page}")


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
