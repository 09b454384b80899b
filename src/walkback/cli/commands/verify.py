"""Measure a run again and confirm or refute its audit card.

example: walkback verify report.json runs/dfa_resmlp_prototypes_s42_1a2b3c4d

Checks the hash of the card, the checkpoints, the configuration and the data; then measures and judges the run again
with the card's settings and compares every number (relative tolerance 1e-3). Accuracies of the baselines are read from
the runs in the same folder. Nothing is written. Exit codes: 0 confirmed, 1 refuted, 2 could not measure, 3 usage or
input error.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from walkback.cli.run_names import run_path
from walkback.cli.terminal import paint
from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, EXIT_WALKED_BACK

_EXIT_CODES = {"confirmed": EXIT_DONE, "refuted": EXIT_WALKED_BACK, "not_measured": EXIT_UNFINISHED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", type=run_path, metavar="REPORT", help="the card: a report.json, or a folder with one")
    parser.add_argument("bundle", type=run_path, metavar="BUNDLE", help="folder of the run that the card is about")
    parser.add_argument(
        "--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or the cache folder)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every check")


def run(args: argparse.Namespace) -> int:
    from walkback.auditing.verify import verify_card
    from walkback.runs.train_runs import choose_device

    verification = verify_card(args.report, args.bundle, data_root=args.data_root, device=choose_device(args.device))
    if args.json:
        print(json.dumps(verification.to_json(), allow_nan=False))
    else:
        first, rest = str(verification).split("\n", 1)
        print(f"{paint(verification.outcome, first)}\n{rest}")
    return _EXIT_CODES[verification.outcome]
