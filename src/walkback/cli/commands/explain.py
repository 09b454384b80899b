"""Explain a diagnostic (D1, D2, D3, direction, concentration): formula, threshold, and when it misleads."""

from __future__ import annotations

import argparse
import shutil
import textwrap

from walkback.core.catalog import Entry
from walkback.core.errors import EXIT_DONE, unknown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("check", nargs="?", help="the diagnostic; without it, all are listed")


def run(args: argparse.Namespace) -> int:
    from walkback.judge.check import CHECKS

    entries = {entry.name.lower(): entry for entry in CHECKS.entries()}
    if args.check is None:
        for entry in entries.values():
            print(f"{entry.name:<14}{entry.summary}")
        return EXIT_DONE
    found = entries.get(args.check.lower())
    if found is None:
        raise unknown("diagnostic", args.check, entries)
    print("\n".join(_lines(found)))
    return EXIT_DONE


def _lines(entry: Entry) -> list[str]:
    width = min(shutil.get_terminal_size().columns, 100)
    lines = textwrap.wrap(f"{entry.name}: {entry.summary}", width)
    for key, value in entry.facts.items():
        lines += ["", *textwrap.wrap(f"{key}: {value}", width, subsequent_indent="  ")]
    return lines
