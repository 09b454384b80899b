"""Train a grid read from a file on many workers: local processes, Ray, or Slurm.

example: walkback sweep grid.yaml --executor slurm --slurm slurm_partition=gpu timeout_min=600 --device cuda

The runs are all combinations of the lists in the file:

    methods: [bp, fa, "dfa:scale=unit_error,site=input"]
    arch: [resmlp, "resmlp:d=512,depth=2"]
    data: cifar10
    seeds: [42, 123, 456]
    epochs: 100
    settings: {lr: [1e-3, 3e-4], augment: crop_flip_black}
    baselines: true

`baselines` adds backprop and the frozen baselines. A worker trains one fleet. Finished runs are skipped; the fleet of a
lost worker is resumed from its last checkpoint by another. Run the same command again to train what is left.
Exit codes: 0 all runs are finished, 2 some are not, 3 usage or input error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkback.cli.training import add_memory_argument, memory_of
from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, InputError
from walkback.core.settings import parse_pairs

if TYPE_CHECKING:
    from walkback.training.planning.fleet_plan import FleetGroup
    from walkback.training.planning.load_balance import Workers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("grid", type=Path, metavar="GRID.YAML", help="file with the grid")
    parser.add_argument("--executor", choices=("local", "ray", "slurm"), default="local", help="where workers run")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="fleets trained at once (default: one per core, or per GPU, with local)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs, visible to all workers")
    parser.add_argument("--data-root", type=Path, help="folder of the data sets, visible to all workers")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to compute; cuda requests GPUs from Ray or Slurm",
    )
    add_memory_argument(parser)
    parser.add_argument(
        "--slurm", nargs="+", default=[], metavar="KEY=VALUE", help="parameters of submitit, such as timeout_min=600"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object per run")
    parser.add_argument("--quiet", action="store_true", help="print results only")


def run(args: argparse.Namespace) -> int:
    if args.jobs is not None and args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}; expected at least 1.")
    if args.slurm and args.executor != "slurm":
        raise InputError(f"--slurm is for --executor slurm, not for {args.executor}.")
    slurm, memory = slurm_settings(args.slurm), memory_of(args.memory)

    from walkback.core.machine import cores
    from walkback.runs.train_runs import TrainOptions
    from walkback.sweeping.executor import worker_threads
    from walkback.sweeping.grid_file import read_grid
    from walkback.sweeping.make_executor import gpu_count, make_executor
    from walkback.sweeping.sweep import jobs_of, run_sweep, runs_of_grid
    from walkback.training.planning.load_balance import ONE_WORKER, Workers

    resolved_runs = runs_of_grid(read_grid(args.grid))
    command = ("walkback", *sys.argv[1:])
    paths = {"out": args.out, "data_root": args.data_root}
    options = TrainOptions(resume=True, device=args.device, memory=memory, command=command, **paths)
    at_once = args.jobs
    workers = ONE_WORKER
    if args.executor == "local":
        gpus = gpu_count(options.device)
        at_once = at_once or gpus or max(1, cores() // worker_threads())
        options = replace(options, sharing=-(-at_once // max(gpus, 1)))
        workers = Workers(at_once, in_turns=gpus == 1)
    if args.dry_run:
        return _dry_run(jobs_of(resolved_runs, options, at_once), args.json, workers)

    from walkback.cli.output import console
    from walkback.cli.progress import result_table
    from walkback.cli.sweeping import SweepProgressBar

    bar = SweepProgressBar(args.quiet or args.json, workers)
    executor = make_executor(args.executor, options, at_once, slurm)
    try:
        swept = run_sweep(resolved_runs, options, executor, at_once, bar)
    finally:
        bar.close()
    if args.json:
        for result in swept.results:
            print(json.dumps(result.to_json()))
    else:
        console().print(result_table(swept.results))
    for failure in swept.failures:
        print(f"walkback: job {failure.job + 1} failed: {failure.reason}", file=sys.stderr)
    unfinished = sum(result.status != "done" for result in swept.results)
    if unfinished:
        count = f"{unfinished} run{' is' if unfinished == 1 else 's are'}"
        print(f"walkback: {count} unfinished; run the same command again to continue.", file=sys.stderr)
    return EXIT_DONE if swept.is_done else EXIT_UNFINISHED


def _dry_run(groups: Sequence[FleetGroup], as_json: bool, workers: Workers) -> int:
    if not as_json:
        from walkback.cli.progress import print_plan

        print_plan(groups, False, workers)
        return EXIT_DONE
    for job, group in enumerate(groups, start=1):
        runs = {"methods": [r.method for r in group.resolved_runs], "runs": [r.name for r in group.resolved_runs]}
        print(json.dumps({"job": job, **group.costs, **runs}))
    return EXIT_DONE


def slurm_settings(items: list[str]) -> dict[str, Any]:
    """Read `timeout_min=600 slurm_partition=gpu` into submitit's parameters; whole numbers become int."""
    pairs = parse_pairs(items, "--slurm", "--slurm key=value, such as timeout_min=600")
    return {key: int(value) if value.isdecimal() else value for key, value in pairs.items()}
