"""The options of commands that judge, and the exit code a verdict gives."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, EXIT_WALKED_BACK, InputError, unknown
from walkback.judge.thresholds import DiagnosticThresholds

if TYPE_CHECKING:
    from walkback.judge.options import JudgeOptions

VERDICT_EXIT_CODES = {"trustworthy": EXIT_DONE, "walked_back": EXIT_WALKED_BACK, "inconclusive": EXIT_UNFINISHED}


def add_judging_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--protocol", choices=("three", "four"), default="three", help="edition that decides")
    parser.add_argument(
        "--null", choices=("method_shell", "bp_shell"), default="method_shell", help="frozen baseline that decides"
    )
    parser.add_argument(
        "--threshold",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="other thresholds, such as g_norm_floor=8e-7 (`walkback explain D2` says what each is)",
    )


def judging_of(args: argparse.Namespace) -> JudgeOptions:
    from walkback.judge.options import JudgeOptions

    return JudgeOptions(parse_thresholds(args.threshold), args.protocol, args.null)


def parse_thresholds(items: list[str]) -> DiagnosticThresholds:
    """`g_norm_floor=8e-7` as thresholds; the others keep their defaults."""
    known = [field.name for field in fields(DiagnosticThresholds)]
    chosen: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not value:
            raise InputError(f"Cannot read --threshold {item}. Write key=value, such as g_norm_floor=8e-7.")
        if key not in known:
            raise unknown("threshold", key, known)
        if key in chosen:
            raise InputError(f"--threshold {key} is given twice. Give it once.")
        chosen[key] = value
    return DiagnosticThresholds(**chosen)
