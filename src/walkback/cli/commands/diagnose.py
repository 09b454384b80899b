"""Measure finished runs and judge what may be claimed of them.

example: walkback diagnose runs/dfa*

The frozen shells and backprop runs that lie finished in the same folder serve as baselines, over all their seeds.
Numbers and a page to read are kept in each run's folder (measurements.npz, report.json, report.html).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, EXIT_WALKED_BACK, InputError

EXIT_CODES = {"trustworthy": EXIT_DONE, "walked_back": EXIT_WALKED_BACK, "inconclusive": EXIT_UNFINISHED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs, or folders of those"
    )
    parser.add_argument("--protocol", choices=("three", "four"), default="three", help="edition that decides")
    parser.add_argument(
        "--null", choices=("method_shell", "bp_shell"), default="method_shell", help="frozen baseline that decides"
    )
    parser.add_argument("--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or a cache)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    parser.add_argument("--json", action="store_true", help="print one audit card per run")


def run(args: argparse.Namespace) -> int:
    from walkback.studies.diagnosis import Judging, diagnose_runs
    from walkback.studies.run import choose_device
    from walkback.studies.store import find_runs

    paths = []
    for given in args.runs:
        found = find_runs(given)
        if not found:
            raise InputError(
                f"There is no run in {given}. A run is a folder with a run.json; `walkback train` makes them."
            )
        paths += found
    device = choose_device(args.device)
    judging = Judging(protocol=args.protocol, null=args.null)
    verdicts = []
    for report in diagnose_runs(paths, judging, data_root=args.data_root, device=device):
        verdicts.append(report.verdict)
        print(json.dumps(report.to_json(), allow_nan=False) if args.json else f"{report}\n")
    # The worst verdict counts: one that must be walked back before one that could not be reached.
    worst = next((v for v in ("walked_back", "inconclusive") if v in verdicts), "trustworthy")
    return EXIT_CODES[worst]
