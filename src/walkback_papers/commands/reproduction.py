"""Write the page that compares our stored results with every figure the papers print.

example: walkback reproduction --results results/paper --out docs/reproduction.md
         walkback reproduction --results results/paper --out docs/reproduction.md --check

RESULTS is the folder of `walkback study all --scale paper --out RESULTS`. Nothing is trained or measured: figures whose
runs are missing are written as not measured. --check writes nothing and exits with 1 if the page would change.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from walkback.core.errors import EXIT_DONE, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("results/paper"), help="folder of the studies' results")
    parser.add_argument("--scale", choices=("smoke", "paper"), default="paper", help="the scale of those studies")
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction.md"), help="the page to write")
    parser.add_argument("--check", action="store_true", help="only check whether the page is up to date")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row; write nothing")


def run(args: argparse.Namespace) -> int:
    if args.check and args.json:
        raise InputError("--check and --json were both given; expected one. Leave one out.")
    runs = args.results / "runs"
    if not runs.is_dir():
        raise InputError(
            f"There is no folder {runs}. `walkback study all --scale {args.scale} --out {args.results}` makes it."
        )
    if args.check and not args.out.is_file():
        raise InputError(f"There is no page {args.out} to check. Leave --check out to write it.")
    from walkback_papers.pages import update_pages
    from walkback_papers.published.page import page, summary
    from walkback_papers.published.reproduce import reproduce_figures
    from walkback_papers.results import Results
    from walkback_papers.scale import scale_of

    reproduction = reproduce_figures(Results(runs), scale_of(args.scale))
    if args.json:
        for row in reproduction.rows:
            print(json.dumps(row.to_json(), allow_nan=False))
        return EXIT_DONE
    code = update_pages({args.out: page(reproduction, args.results, args.out)}, check=args.check)
    if not args.check:
        print(summary(reproduction.rows))
    return code
