"""Train methods with the baselines they need, measure them, and judge them together.

example: walkback audit --methods bp fa:site=input dfa:scale=unit_error,site=input
             --data cifar10 --seeds 42 123 456 --epochs 100 --out audit

To each method its frozen shell is added, to all of them backprop and its shell: what a claim of depth is held against.
Writes every run with its card, and an overview (audit.html, .md, .tex, .json). The exit code is that of the worst
verdict: 0 trustworthy, 1 walked back, 2 inconclusive or unfinished.
"""

from __future__ import annotations

import argparse
import json
import sys

from walkback.cli.judge_options import VERDICT_EXIT_CODES, add_judging_arguments, parse_thresholds
from walkback.cli.training import add_grid_arguments, add_run_arguments, grid_settings, run_settings
from walkback.core.errors import EXIT_UNFINISHED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", default=["bp", "fa", "dfa"], metavar="METHOD", help="methods to audit")
    add_grid_arguments(parser)
    add_judging_arguments(parser)
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the overview as one JSON object")


def run(args: argparse.Namespace) -> int:
    grid, how, thresholds = grid_settings(args), run_settings(args), parse_thresholds(args.threshold)

    from walkback.api import audit
    from walkback.cli.progress import ProgressBar

    bar = ProgressBar(quiet=args.quiet or args.json)
    judge_options = {"thresholds": thresholds, "protocol": args.protocol, "null": args.null}
    try:
        command = ("walkback", *sys.argv[1:])
        found = audit(args.methods, command=command, listener=bar, **judge_options, **how, **grid)
    finally:
        bar.close()
    if found.table is None:
        print(f"walkback: {found} The same command with --resume goes on.", file=sys.stderr)
        return EXIT_UNFINISHED
    print(json.dumps(found.table.to_json(), allow_nan=False) if args.json else found)
    if not args.json:
        print(f"Report: {found.page}")
    return VERDICT_EXIT_CODES[found.table.verdict]
