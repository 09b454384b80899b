"""Print an audit in a terminal: verdicts and reasons, or with --full the whole table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from walkback.cli.terminal import marks, paint, printable

if TYPE_CHECKING:
    from walkback.auditing.audit import Audit
    from walkback.judge.report import DiagnosticReport


def add_printing_arguments(
    parser: argparse.ArgumentParser, json_help: str = "print the overview as one JSON object"
) -> None:
    parser.add_argument("--full", action="store_true", help="print the whole table in place of the summary")
    parser.add_argument("--json", action="store_true", help=json_help)


def print_audit(audit: Audit, full: bool, decimals: int = 1) -> None:
    """Print the summary, with percentages of so many decimals, or the whole table; and where the page is."""
    print(printable(audit.full_text if full else audit.summary(marks(), paint, decimals)))
    print(f"Report: {audit.page}")


def print_report(report: DiagnosticReport) -> None:
    """Print a report, verdict first."""
    label = f"VERDICT: {report.decision.word}"
    print(f"{paint(report.verdict, label)}{str(report).removeprefix(label)}\n")
