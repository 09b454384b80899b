"""Train BP, FA, DFA and their frozen baselines on an embedded task and judge them, without a download.

Takes under a minute on two cores. Prints for each method the verdict, the test accuracy, what its trained blocks add to
that of its frozen baseline (the same network with blocks frozen at random), what it may claim, and why not more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from walkback.cli.print_audit import add_printing_arguments, print_audit
from walkback.core.errors import EXIT_DONE

DEMO_METHODS = ("bp", "fa", "dfa", "dfa:scale=unit_error")
ARCH, DATA = "resmlp:d=32", "prototypes:prototypes=30,train=6400,test=2000"
DEMO_SEEDS = (1, 2, 3)
"""Fixed before any of their results was seen; the task and the recipe were chosen on other seeds."""
_RECIPE = {"epochs": 12, "lr": 0.02, "dtype": "float64"}
# Twenty times the usual learning rate: the failure of DFA that takes 100 epochs on CIFAR appears here within 600 steps.
# In float64, so that what is shown is the same on every CPU.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo-runs"), help="folder for the runs")
    parser.add_argument("--quiet", action="store_true", help="print the table only")
    add_printing_arguments(parser, "print one JSON object per run")


def run(args: argparse.Namespace) -> int:
    from walkback.auditing.audit import run_audit
    from walkback.cli.progress import ProgressBar
    from walkback.core.configuration import grid
    from walkback.judge.options import JudgeOptions
    from walkback.runs.train_runs import TrainOptions
    from walkback.training.planning.fleet_plan import suitable_threads
    from walkback.training.resolved_run import resolve

    bar = ProgressBar(quiet=args.quiet or args.json, with_plan=False)
    configs = grid(DEMO_METHODS, arch=ARCH, data=DATA, seeds=DEMO_SEEDS, **_RECIPE)
    # Resuming is always safe: the folder holds only the demo's runs, and a second demo prints the same table.
    options = TrainOptions(args.out, resume=True, device="cpu", command=("walkback", *sys.argv[1:]), predict=False)
    try:
        with suitable_threads(flops=0):  # One thread: networks as small as these make several wait for each other.
            result = run_audit([resolve(config) for config in configs], options, JudgeOptions(), bar)
    finally:
        bar.close()
    assert result.table is not None, "without a time limit every run is finished"
    if args.json:
        cards = {card["provenance"]["run"]: card for row in result.table.rows for card in row.cards}
        for trained in result.results:
            card = cards.get(trained.run)
            verdicts = {"verdict": card["verdict"], "verdicts": _outcomes(card)} if card else {}
            print(json.dumps(trained.to_json() | verdicts))
        return EXIT_DONE
    # Whole percentages: a test sample more or less depends on the CPU.
    print_audit(result, args.full, decimals=0)
    return EXIT_DONE


def _outcomes(card: Mapping[str, Any]) -> dict[str, str]:
    return {name: verdict["verdict"] for name, verdict in card["verdicts"].items()}
