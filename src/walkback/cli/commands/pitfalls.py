"""Reproduce the pitfalls of alignment measurement: the wrong way, the right way, and the size of the error.

example: walkback pitfalls 2 14

Without a number, runs all of them, in seconds, on one CPU core and without a download. Exit codes: 0 every error
reproduces with at least its stated size, 1 one does not, 3 usage or input error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from walkback.core.errors import EXIT_DONE, EXIT_WALKED_BACK

if TYPE_CHECKING:
    from walkback.core.catalog import Entry
    from walkback.pitfalls.case import PitfallOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("numbers", nargs="*", metavar="N", help="numbers of the pitfalls (default: all)")
    parser.add_argument("--list", action="store_true", help="list the pitfalls without running them")
    parser.add_argument("--json", action="store_true", help="print one JSON object per pitfall")


def run(args: argparse.Namespace) -> int:
    from walkback.pitfalls.case import chosen_pitfalls, reproduce_pitfall

    wanted = chosen_pitfalls(args.numbers)
    if args.list:
        for number, entry in wanted.items():
            print(json.dumps(_facts(number, entry)) if args.json else f"{number:>2}  {entry.summary}")
        return EXIT_DONE
    done = 0
    for number, entry in wanted.items():
        outcome = reproduce_pitfall(entry)
        done += outcome.reproduces
        if args.json:
            print(json.dumps({**_facts(number, entry), **outcome.to_json()}, allow_nan=False), flush=True)
        else:
            print(_text(number, entry, outcome), end="\n\n", flush=True)
    if not args.json:
        print(f"{done} of {len(wanted)} reproduce{'s' if len(wanted) == 1 else ''}.")
    return EXIT_DONE if done == len(wanted) else EXIT_WALKED_BACK


def _facts(number: int, entry: Entry) -> dict[str, Any]:
    codes = [] if entry.facts["Linter"] == "none" else entry.facts["Linter"].split(", ")
    ways = {"wrong_way": entry.facts["Wrong"], "right_way": entry.facts["Right"]}
    return {"number": number, "name": entry.name, "summary": entry.summary, **ways, "lint": codes}


def _text(number: int, entry: Entry, outcome: PitfallOutcome) -> str:
    word = "reproduces" if outcome.reproduces else "DOES NOT REPRODUCE"
    size = f"{_shown(outcome.size)} {outcome.unit}, {word} (stated: at least {outcome.expected:g})"
    name = entry.name.partition("_")[2].replace("_", " ")
    lines = [
        _wrapped(f"{number:>2}  ", f"{name}: {entry.summary}"),
        _wrapped("    wrong  ", f"{_shown(outcome.wrong)}  {entry.facts['Wrong']}"),
        _wrapped("    right  ", f"{_shown(outcome.right)}  {entry.facts['Right']}"),
        _wrapped("    error  ", size),
    ]
    if outcome.note:
        lines.append(_wrapped("    note   ", outcome.note))
    return "\n".join(lines)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _wrapped(start: str, text: str) -> str:
    width = min(shutil.get_terminal_size().columns, 120)
    return textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start))
