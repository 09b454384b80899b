"""Train methods with their baselines, measure all of them, and judge them together.

example: walkback audit --methods bp fa:site=input dfa:scale=unit_error,site=input
             --data cifar10 --seeds 42 123 456 --epochs 100 --out audit

Adds the baselines that a claim of depth is compared with: each method's frozen baseline (blocks frozen at random),
backprop, and backprop's frozen baseline; and the oracle control that tells whether the credit is at fault, the method
with exact credit (where that is not backprop). With --train your own function trains them:

example: walkback audit --train my_project:train --methods mine bp --seeds 0 1 2 --executor local --out audit

Its module may have a dict AUDIT with further arguments of walkback.audit (build, eval_batches, credit, describe, ...).

Writes every run with its card, and an overview (audit.html, .md, .tex
and .json). The exit code is that of the worst verdict: 0 trustworthy, 1 walked back, 2 inconclusive or unfinished; 3 is
a usage or input error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from walkback.cli.judge_options import VERDICT_EXIT_CODES, add_judging_arguments, parse_thresholds
from walkback.cli.own_loop import add_own_loop_arguments, audit_of_train, refuse_without_train
from walkback.cli.print_audit import add_printing_arguments, print_audit
from walkback.cli.training import (
    add_grid_arguments,
    add_methods_argument,
    add_run_arguments,
    add_tuning_arguments,
    grid_settings,
    run_settings,
    tune_options,
)
from walkback.core.errors import EXIT_UNFINISHED

if TYPE_CHECKING:
    from walkback.auditing.audit import Audit
    from walkback.runs.train_runs import ProgressListener

_METHODS = ("bp", "fa", "dfa")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_methods_argument(parser, "methods to audit (default: bp fa dfa)")
    add_grid_arguments(parser)
    add_judging_arguments(parser)
    parser.add_argument(
        "--oracle",
        choices=("none", "exact", "all"),
        help="oracle controls to train: none; exact credit (O1); also at the input (O2) and by direction (O3) "
        "(default: exact; none with --train)",
    )
    add_tuning_arguments(parser)
    add_run_arguments(parser)
    add_own_loop_arguments(parser)
    add_printing_arguments(parser)


def run(args: argparse.Namespace) -> int:
    common, how, thresholds = grid_settings(args), run_settings(args), parse_thresholds(args.threshold)
    if args.train:
        return _print(args, lambda bar: audit_of_train(args, bar))
    refuse_without_train(args)
    tune = tune_options(args)

    from walkback.auditing.audit import run_audit
    from walkback.core.configuration import grid
    from walkback.judge.options import JudgeOptions
    from walkback.runs.train_runs import TrainOptions
    from walkback.training.resolved_run import resolve

    judge_options = JudgeOptions(thresholds, args.protocol, args.null, tuple(args.claims))
    resolved_runs = [resolve(config) for config in grid(args.methods or _METHODS, **common)]
    options = TrainOptions(**how, command=("walkback", *sys.argv[1:]))
    return _print(args, lambda bar: run_audit(resolved_runs, options, judge_options, bar, args.oracle or "exact", tune))


def _print(args: argparse.Namespace, run_audit: Callable[[ProgressListener], Audit]) -> int:
    """Run an audit with a progress bar, print its table, and return the exit code of its verdict."""
    from walkback.auditing.audit_files import overview_json
    from walkback.cli.progress import ProgressBar

    bar = ProgressBar(quiet=args.quiet or args.json)
    try:
        result = run_audit(bar)
    finally:
        bar.close()
    if result.table is None:
        print(f"walkback: {result} Run the same command with --resume to continue.", file=sys.stderr)
        return EXIT_UNFINISHED
    if args.json:
        tables = [] if result.tuning is None else [result.tuning]
        print(json.dumps(overview_json(result.table, tables), allow_nan=False))
    else:
        print_audit(result, args.full)
    return VERDICT_EXIT_CODES[result.table.verdict]
