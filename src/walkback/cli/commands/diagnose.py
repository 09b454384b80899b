"""Measure finished runs, or your own model, and judge what may be claimed about them.

examples: walkback diagnose runs/dfa*
          walkback diagnose --model my_nets:build --checkpoint net.pt --data cifar10
              --headline-acc 0.31 --frozen-acc 0.35

A run is compared with the finished frozen baselines and backprop runs in the same folder, over all their seeds. The
measurements and the card are written into each run's folder (measurements.npz, report.json, report.html). Of a folder
of runs the frozen baselines are left out, and runs that were measured before are judged without measuring them again.
Your own model is built by a function without arguments; --data is the name of a data set (its test samples, normalised
as in training) or package.module:function that yields (x, y) batches.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from walkback.cli.judge_options import VERDICT_EXIT_CODES, add_judging_arguments, judging_of
from walkback.cli.print_audit import print_report
from walkback.cli.run_names import run_path
from walkback.cli.terminal import marks, paint, printable
from walkback.core.errors import InputError

if TYPE_CHECKING:
    from walkback.runs.store import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        type=run_path,
        metavar="RUN",
        help="finished runs, or folders that contain them; the beginning of a run's name is enough",
    )
    parser.add_argument("--again", action="store_true", help="measure again what was measured before")
    parser.add_argument("--full", action="store_true", help="print every number of every run")
    add_judging_arguments(parser)
    parser.add_argument(
        "--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or the cache folder)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    parser.add_argument("--json", action="store_true", help="print one audit card per run as JSON")
    own = parser.add_argument_group("your own model")
    own.add_argument("--model", metavar="PKG.MOD:BUILD", help="function that builds the model")
    own.add_argument("--checkpoint", type=Path, help="weights of the model: a state dict, or safetensors")
    own.add_argument("--data", help="samples to measure the model on")
    own.add_argument(
        "--headline-acc", nargs="+", type=float, metavar="ACC", help="accuracy of the model, one value per seed"
    )
    own.add_argument(
        "--frozen-acc",
        nargs="+",
        type=float,
        metavar="ACC",
        help="accuracy of its frozen baseline (blocks frozen at random)",
    )
    own.add_argument("--bp-acc", nargs="+", type=float, metavar="ACC", help="accuracy of backprop")
    own.add_argument(
        "--bp-frozen-acc",
        nargs="+",
        type=float,
        metavar="ACC",
        help="accuracy of backprop's frozen baseline; with --bp-acc it says whether depth is needed",
    )
    own.add_argument(
        "--test-samples", type=int, metavar="N", help="size of the test set: with it one seed has an interval"
    )
    own.add_argument(
        "--blocks",
        nargs="+",
        default="auto",
        metavar="NAME",
        help="names of its residual blocks, if they are not found",
    )
    own.add_argument(
        "--pool", choices=("auto", "cls", "mean", "all"), default="auto", help="how token states are pooled"
    )
    own.add_argument("--name", default="", help="name of the method on the card")
    own.add_argument("--out", type=Path, help="folder for the card and its pages")


def run(args: argparse.Namespace) -> int:
    if bool(args.model) == bool(args.runs):
        raise InputError("Name either runs or --model pkg.mod:build. `walkback diagnose --help` shows examples.")
    return _model(args) if args.model else _runs(args)


def _runs(args: argparse.Namespace) -> int:
    from walkback.auditing.diagnose_runs import diagnose_runs
    from walkback.auditing.measure_run import RunMeasurer
    from walkback.cli.progress import ProgressBar
    from walkback.judge.audit_table import make_audit_table, worst_outcome
    from walkback.report.verdict_lines import summary_lines
    from walkback.runs.train_runs import choose_device

    paths = list(dict.fromkeys(path for given in args.runs for path in _runs_of(given)))
    measurer = RunMeasurer(args.data_root, choose_device(args.device))
    bar, reports = ProgressBar(quiet=args.json), []
    try:
        for report in diagnose_runs(paths, judging_of(args), measurer, bar, again=args.again):
            reports.append(report)
            if args.json:
                print(json.dumps(report.to_json(), allow_nan=False))
            elif args.full or len(paths) == 1:
                print_report(report)
    finally:
        bar.close()
    if not args.json and len(paths) > 1:
        table = make_audit_table([report.to_json() for report in reports])
        print(printable("\n".join(summary_lines(table, marks(), paint))))
    return VERDICT_EXIT_CODES[worst_outcome([report.verdict for report in reports])]


def _runs_of(given: Path) -> list[Path]:
    """The run at a path, or the runs in a folder that are finished and no frozen baselines."""
    from walkback.runs import store

    found = store.find_runs(given)
    if not found:
        raise InputError(f"There is no run in {given}. A run is a folder with a run.json; `walkback train` makes them.")
    if found == [given]:
        return found
    records = {path: store.open_run(path, without=(store.MODEL, store.RULE)) for path in found}
    trained = {path: run for path, run in records.items() if not _is_frozen(run)}
    finished = [path for path, run in trained.items() if run.is_done]
    if not finished:
        what = "only frozen baselines" if not trained else "no finished run"
        raise InputError(f"There is {what} in {given}. Name a run to measure it, or train the methods first.")
    left_out = {
        "frozen baseline": len(found) - len(trained),
        "unfinished run": len(trained) - len(finished),
    }
    for what, count in left_out.items():
        if count:
            print(f"{count} {what}{'s' if count > 1 else ''} left out", file=sys.stderr)
    return finished


def _is_frozen(run: Run) -> bool:
    method = run.record["config"].get("method")
    return isinstance(method, dict) and method.get("shell", "none") != "none"


def _model(args: argparse.Namespace) -> int:
    if not args.data:
        raise InputError("--model needs --data: a data set's name, or pkg.mod:function that yields (x, y) batches.")
    from walkback.auditing import load_model
    from walkback.auditing.diagnose_model import diagnose_model
    from walkback.measure.options import MeasureOptions
    from walkback.runs.train_runs import choose_device

    judge_options, device = judging_of(args), choose_device(args.device)
    model = load_model.load_model(args.model, args.checkpoint, device)
    batches = load_model.load_batches(args.data, args.data_root, device)
    frozen = args.frozen_acc
    if args.bp_frozen_acc is not None:
        frozen = {"method_shell": args.frozen_acc, "bp_shell": args.bp_frozen_acc}
    accuracies = {
        "headline_acc": args.headline_acc,
        "frozen_baseline_acc": frozen,
        "bp_acc": args.bp_acc,
        "test_samples": args.test_samples,
    }
    blocks = args.blocks[0] if len(args.blocks) == 1 else args.blocks
    report = diagnose_model(
        model,
        batches,
        accuracies,
        judge_options,
        method_name=args.name or args.model,
        notes="" if args.checkpoint is None else f"checkpoint {args.checkpoint}",
        blocks=blocks,
        step_fn=None,
        options=MeasureOptions(pool=args.pool),
    )
    if args.json:
        print(json.dumps(report.to_json(), allow_nan=False))
    else:
        print_report(report)
    if args.out:
        report.save(args.out)
    return VERDICT_EXIT_CODES[report.verdict]
