"""Run experiments of the papers, or our own, and write their tables and figures.

example: walkback study primary-audit --scale smoke --out studies
         walkback study all --scale paper --data-root data --out studies
         walkback study all --scale paper --out studies --publish results/paper

Runs are in OUT/runs and are shared: what several studies need is trained and measured once. The same command resumes
after an interruption. --render writes the pages again from stored results: no model is read, nothing is measured.

--publish copies the results of these studies from OUT to FOLDER, small enough for version control: records, logs and
rounded measurements, no weights; and writes the pages there from the copy. Nothing is trained, and nothing is written
if a run is not finished and measured. A second time only what has changed is written. Other files in FOLDER are kept;
runs there that no study needs any more are listed, not removed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, InputError

if TYPE_CHECKING:
    from walkback.report.study_report import StudyReport
    from walkback.runs.train_runs import TrainOptions
    from walkback.training.planning.load_balance import Workers
    from walkback_papers.run_studies import RunCompleter
    from walkback_papers.scale import Scale
    from walkback_papers.study import Study


ON_A_GPU, CORES_EACH = 4, 4
"""Processes that share a GPU, and CPU cores for each: one trains while the others compile on the CPU."""
_ONE_PROCESS_STUDIES = 4
"""Up to this many studies, writing the reports in one process is as fast as starting others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="studies (`walkback ls studies`), or all")
    parser.add_argument("--scale", choices=("smoke", "paper"), default="smoke", help="embedded task, or real data")
    parser.add_argument("--out", type=Path, default=Path("studies"), help="folder for runs and pages")
    parser.add_argument("--render", action="store_true", help="write the pages from stored results alone")
    parser.add_argument("--publish", type=Path, metavar="FOLDER", help="copy finished results to FOLDER, rounded")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--max-seconds", type=float, help="stop at the first checkpoint after this long")
    parser.add_argument(
        "--processes",
        type=int,
        help=f"processes to train and measure in (default: one for each core; on a GPU up to {ON_A_GPU}, which take "
        "turns on it)",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    parser.add_argument("--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or a cache)")
    parser.add_argument("--quiet", action="store_true", help="print nothing but results")
    parser.add_argument("--json", action="store_true", help="print one JSON object per study (or fleet)")


def run(args: argparse.Namespace) -> int:
    if args.max_seconds is not None and not args.max_seconds > 0:
        raise InputError(f"--max-seconds is {args.max_seconds}; expected more than 0.")
    if args.processes is not None and args.processes < 1:
        raise InputError(f"--processes is {args.processes}; expected at least 1.")
    if args.publish is not None and (args.render or args.dry_run):
        other = "--render" if args.render else "--dry-run"
        raise InputError(f"--publish and {other} were both given; expected one. Leave one out.")
    from walkback.cli.progress import ProgressBar
    from walkback.runs.train_runs import TrainOptions
    from walkback_papers.run_studies import run_studies, studies_of, write_reports
    from walkback_papers.scale import scale_of

    scale = scale_of(args.scale)
    studies = studies_of(args.names)
    if args.publish is not None:
        return _publish(args, studies, scale)
    if args.render:
        return _print(args, write_reports(studies, scale, args.out, _report_processes(args, studies)), args.out)
    options = TrainOptions(
        out=args.out,
        device=args.device,
        data_root=args.data_root,
        max_seconds=args.max_seconds,
        command=("walkback", *sys.argv[1:]),
    )
    if args.dry_run:
        return _dry_run(args, studies, scale, options)
    bar = ProgressBar(quiet=args.quiet or args.json)
    try:
        done = run_studies(studies, scale, options, bar, _run_completer(args), _workers(args).count)
    finally:
        bar.close()
    if done.unfinished:
        what = "measurements are missing" if done.unfinished == done.unmeasured else "runs are unfinished"
        print(f"walkback: {done.unfinished} {what}; run the same command again to continue.", file=sys.stderr)
        return EXIT_UNFINISHED
    return _print(args, done.study_reports, args.out)


def _report_processes(args: argparse.Namespace, studies: Mapping[str, Study]) -> int:
    """Number of processes that write reports: starting one takes as long as writing a few."""
    from walkback.core.machine import cores

    return (args.processes or cores()) if len(studies) > _ONE_PROCESS_STUDIES else 1


def _run_completer(args: argparse.Namespace) -> RunCompleter:
    """Trains and measures in this process if one is enough, otherwise in several."""
    from walkback_papers.run_studies import complete_runs

    workers = _workers(args)
    if workers.count == 1:
        return complete_runs
    from walkback.cli.sweeping import SweepProgressBar
    from walkback_papers.study_processes import StudyProcesses

    return StudyProcesses(workers, SweepProgressBar(args.quiet or args.json, workers))


def _workers(args: argparse.Namespace) -> Workers:
    from walkback.core.machine import cores
    from walkback.runs.train_runs import choose_device
    from walkback.sweeping.executor import worker_threads
    from walkback.training.planning.load_balance import Workers

    is_gpu = choose_device(args.device).type == "cuda"
    usual = min(ON_A_GPU, cores() // CORES_EACH) if is_gpu else cores() // worker_threads()
    return Workers(args.processes or max(1, usual), in_turns=is_gpu)


def _dry_run(args: argparse.Namespace, studies: Mapping[str, Study], scale: Scale, options: TrainOptions) -> int:
    from walkback.cli.progress import print_plan
    from walkback_papers.perform_experiments import missing_of_studies
    from walkback_papers.run_studies import plan_of

    groups, done = plan_of(studies, scale, options)
    if groups or args.json:
        print_plan(groups, args.json, _workers(args))
    if done and not args.json:
        print(f"{done} more runs are trained already." if groups else f"All {done} runs are trained already.")
    missing = missing_of_studies(studies, scale, options.out)
    if missing and not args.json:
        print(f"Experiments without a result: {', '.join(experiment.name for _, experiment in missing)}.")
    return EXIT_DONE


def _publish(args: argparse.Namespace, studies: Mapping[str, Study], scale: Scale) -> int:
    from walkback_papers.publish import publish

    done = publish(studies, scale, args.out, args.publish, processes=_report_processes(args, studies))
    _print(args, done.study_reports, args.publish)
    if not args.json:
        print(f"{done.runs} runs in {args.publish}, {done.written} of them new or changed.")
    if done.unused_runs:
        print(f"walkback: no study needs these runs in {args.publish}: {', '.join(done.unused_runs)}", file=sys.stderr)
    return EXIT_DONE


def _print(args: argparse.Namespace, study_reports: Sequence[StudyReport], folder: Path) -> int:
    for study_report in study_reports:
        if args.json:
            print(json.dumps(study_report.to_json(), allow_nan=False))
            continue
        print(f"{study_report.name}: {study_report.question}")
        for finding in study_report.findings:
            print(f"  {finding.word}: {finding.claim} {finding.details}")
        print(f"  {folder / study_report.name / 'index.html'}")
    return EXIT_DONE
