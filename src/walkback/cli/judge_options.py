"""Options shared by the commands that judge, and the exit code of each verdict."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, EXIT_WALKED_BACK, unknown
from walkback.core.settings import parse_pairs
from walkback.judge.editions import CLAIMS_EDITION, PROTOCOLS
from walkback.judge.headline import CLAIMED
from walkback.judge.thresholds import DiagnosticThresholds

if TYPE_CHECKING:
    from walkback.judge.options import JudgeOptions

VERDICT_EXIT_CODES = {
    "trustworthy": EXIT_DONE,
    "walked_back": EXIT_WALKED_BACK,
    "inconclusive": EXIT_UNFINISHED,
    "cannot_be_judged": EXIT_UNFINISHED,
}


def add_judging_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--protocol",
        choices=tuple(PROTOCOLS),
        default=CLAIMS_EDITION,
        help="rule that decides the verdict: by what may be claimed, or one of the papers' (later: three, first: four)",
    )
    parser.add_argument(
        "--null",
        choices=("method_shell", "bp_shell"),
        default="method_shell",
        help="frozen baseline that accuracy is compared with: its other parts are trained by the method itself "
        "(method_shell) or by backprop (bp_shell)",
    )
    parser.add_argument(
        "--claims",
        nargs="+",
        choices=CLAIMED,
        default=list(CLAIMED),
        help="what is claimed; with `depth` alone a measured alignment is shown and decides nothing",
    )
    parser.add_argument(
        "--threshold",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="thresholds to change, such as g_norm_floor=8e-7 (`walkback explain D2` names those of D2)",
    )


def judging_of(args: argparse.Namespace) -> JudgeOptions:
    from walkback.judge.options import JudgeOptions

    return JudgeOptions(parse_thresholds(args.threshold), args.protocol, args.null, tuple(args.claims))


def parse_thresholds(items: list[str]) -> DiagnosticThresholds:
    """Thresholds with the given values, such as `g_norm_floor=8e-7`, and defaults for the others."""
    known = [field.name for field in fields(DiagnosticThresholds)]
    chosen: dict[str, Any] = {**parse_pairs(items, "--threshold", "key=value, such as g_norm_floor=8e-7")}
    for key in chosen:
        if key not in known:
            raise unknown("threshold", key, known)
    return DiagnosticThresholds(**chosen)
