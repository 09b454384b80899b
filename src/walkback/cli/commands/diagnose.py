"""Measure finished runs, or your own model, and judge what may be claimed about them.

examples: walkback diagnose runs/dfa*
          walkback diagnose --model my_nets:build --checkpoint net.pt --data cifar10
              --headline-acc 0.31 --frozen-acc 0.35

A run is compared with the finished frozen baselines and backprop runs in the same folder, over all their seeds. The
measurements and the card are written into each run's folder (measurements.npz, report.json, report.html).
Your own model is built by a function without arguments; --data is the name of a data set (its test samples, normalised
as in training) or package.module:function that yields (x, y) batches.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from walkback.cli.judge_options import VERDICT_EXIT_CODES, add_judging_arguments, judging_of
from walkback.core.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="folders of finished runs, or folders that contain them"
    )
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
    from walkback.judge.audit_table import worst_outcome
    from walkback.runs.store import find_runs
    from walkback.runs.train_runs import choose_device

    paths = []
    for given in args.runs:
        found = find_runs(given)
        if not found:
            raise InputError(
                f"There is no run in {given}. A run is a folder with a run.json; `walkback train` makes them."
            )
        paths += found
    measurer = RunMeasurer(args.data_root, choose_device(args.device))
    bar, verdicts = ProgressBar(quiet=args.json), []
    try:
        for report in diagnose_runs(paths, judging_of(args), measurer, bar):
            verdicts.append(report.verdict)
            print(json.dumps(report.to_json(), allow_nan=False) if args.json else f"{report}\n")
    finally:
        bar.close()
    return VERDICT_EXIT_CODES[worst_outcome(verdicts)]


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
    print(json.dumps(report.to_json(), allow_nan=False) if args.json else report)
    if args.out:
        report.save(args.out)
    return VERDICT_EXIT_CODES[report.verdict]
