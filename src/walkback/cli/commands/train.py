"""Train a grid of methods and seeds; runs of the same shape are trained together, as fleets.

example: walkback train --method bp fa dfa dfa:scale=unit_error,site=input dfa:shell=method
             --arch resmlp --data cifar10 --seeds 42 123 456 --epochs 100

A method is NAME or NAME:key=value,key=value; `walkback ls methods` lists the names. Settings that every method has:
shell=none|method|bp (frozen baseline, trained by the method or by bp), site=output|input, penalty=NUMBER,
penalty_reduction=sum|mean, credit=own|exact|direction (oracle control: the exact gradient, or its direction with the
norm of the method's credit, in place of that credit).
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from walkback.cli.training import (
    add_grid_arguments,
    add_methods_argument,
    add_run_arguments,
    add_tuning_arguments,
    grid_settings,
    run_settings,
    tune_options,
)
from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED

if TYPE_CHECKING:
    from walkback.core.tuning import TuneOptions
    from walkback.runs.train_runs import TrainOptions
    from walkback.training.resolved_run import ResolvedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_methods_argument(parser, "methods to train (default: bp)")
    add_grid_arguments(parser)
    add_tuning_arguments(parser)
    add_run_arguments(parser)
    parser.add_argument("--watch", type=int, metavar="K", help="run the detectors every K epochs and log their values")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object per run, then that of --tune")


def run(args: argparse.Namespace) -> int:
    common, how, tune = grid_settings(args), run_settings(args), tune_options(args)

    from walkback.auditing.epoch_monitor import EpochMonitor
    from walkback.core.configuration import grid
    from walkback.runs.train_runs import TrainOptions
    from walkback.runs.tuning import train_tuned
    from walkback.training.resolved_run import resolve

    resolved_runs = [resolve(config) for config in grid(args.methods or ("bp",), **common)]
    options = TrainOptions(**how, command=("walkback", *sys.argv[1:]))
    if args.dry_run:
        return _dry_run(args, resolved_runs, options, tune)

    from walkback.cli.output import console
    from walkback.cli.progress import ProgressBar, result_table
    from walkback.report.tuning import tuning_text

    bar = ProgressBar(quiet=args.quiet or args.json)
    observer = None if args.watch is None else EpochMonitor(every=args.watch)
    try:
        results, tuning = train_tuned(resolved_runs, tune, options, bar, observer)
    finally:
        bar.close()
    if args.json:
        for result in results:
            print(json.dumps(result.to_json()))
        if tuning:
            print(json.dumps({"tuning": tuning.to_json()}))
    else:
        console().print(result_table(results))
        if tuning:
            print(f"\n{tuning_text(tuning)}")
    unfinished = [result for result in results if result.status != "done"]
    if unfinished:
        word = "run is" if len(unfinished) == 1 else "runs are"
        print(
            f"walkback: {len(unfinished)} {word} unfinished; run the same command with --resume to continue.",
            file=sys.stderr,
        )
    return EXIT_UNFINISHED if unfinished else EXIT_DONE


def _dry_run(
    args: argparse.Namespace, resolved_runs: list[ResolvedRun], options: TrainOptions, tune: TuneOptions | None
) -> int:
    from walkback.cli.progress import print_plan
    from walkback.runs.train_runs import plan_unfinished, refuse_duplicates
    from walkback.runs.tuning import planned_tuning

    refuse_duplicates(resolved_runs)
    # The judged runs are planned with the learning rate that was given; that of another has the same cost.
    tuning = planned_tuning(resolved_runs, tune, options) if tune else []
    print_plan([*tuning, *plan_unfinished(resolved_runs, options)], as_json=args.json)
    return EXIT_DONE
