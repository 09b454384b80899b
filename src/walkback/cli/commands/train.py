"""Train a grid of methods and seeds as one plan of fleets.

example: walkback train --method bp fa dfa dfa:scale=unit_error,site=input dfa:shell=method
             --arch resmlp --data cifar10 --seeds 42 123 456 --epochs 100

A method is NAME or NAME:key=value,key=value. Settings that every method has: shell=none|method|bp,
site=output|input, penalty=NUMBER, penalty_reduction=sum|mean. `walkback ls methods` lists the names.
"""

from __future__ import annotations

import argparse
import json
import sys

from walkback.cli.training import add_grid_arguments, add_run_arguments, grid_settings, memory_of, run_settings
from walkback.core.configuration import RunConfig
from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", nargs="+", default=["bp"], metavar="METHOD", help="methods to train")
    add_grid_arguments(parser)
    add_run_arguments(parser)
    parser.add_argument("--watch", type=int, metavar="K", help="detectors look every K epochs and write into the log")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object per run")


def run(args: argparse.Namespace) -> int:
    common, how = grid_settings(args), run_settings(args)

    from walkback.api import train
    from walkback.core.configuration import grid

    if args.dry_run:
        return _dry_run(args, grid(args.method, **common))

    from rich.console import Console

    from walkback.cli.progress import ProgressBar, result_table

    bar = ProgressBar(quiet=args.quiet or args.json)
    try:
        command = ["walkback", *sys.argv[1:]]
        results = train(args.method, command=command, listener=bar, watch=args.watch, **how, **common)
    finally:
        bar.close()
    if args.json:
        for result in results:
            print(json.dumps(result.to_json()))
    else:
        Console(highlight=False).print(result_table(results))
    unfinished = [result for result in results if result.status != "done"]
    if unfinished:
        word = "run is" if len(unfinished) == 1 else "runs are"
        print(
            f"walkback: {len(unfinished)} {word} unfinished; the same command with --resume goes on.", file=sys.stderr
        )
    return EXIT_UNFINISHED if unfinished else EXIT_DONE


def _dry_run(args: argparse.Namespace, configs: list[RunConfig]) -> int:
    from walkback.cli.progress import print_plan
    from walkback.runs.train_runs import TrainOptions, plan_unfinished, refuse_duplicates
    from walkback.training.resolved_run import resolve

    resolved_runs = [resolve(config) for config in configs]
    refuse_duplicates(resolved_runs)
    options = TrainOptions(args.out, args.resume, args.device, args.driver, memory=memory_of(args.memory))
    print_plan(plan_unfinished(resolved_runs, options), as_json=args.json)
    return EXIT_DONE
