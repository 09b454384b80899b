"""`python -m walkback.campaign`: damage files at random for some minutes and print what went wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from walkback.campaign.specimens import make_specimens
from walkback.campaign.trials import run_campaign


def run_from_command_line() -> int:
    parser = argparse.ArgumentParser(prog="python -m walkback.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to try (default: 1)")
    parser.add_argument("--trials", type=int, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="the same seed does the same damage (default: 0)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="walkback-campaign-") as folder:
        specimens = make_specimens(Path(folder))
        found = run_campaign(specimens, Path(folder), args.seed, args.trials, 60 * args.minutes)
    for problem in found.bad:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"seed {args.seed}: {found}\n")
    return 1 if found.bad else 0


if __name__ == "__main__":
    sys.exit(run_from_command_line())
