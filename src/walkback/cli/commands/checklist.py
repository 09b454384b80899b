"""Fill the reporting checklist and a "how we measured" section for a paper from diagnosed runs.

example: walkback checklist runs/dfa* --format tex --out measured.tex

Reads each run's report.json, which `walkback diagnose` writes; measures nothing. Runs that differ only in their seed
are reported together. What the cards do not contain stays [TODO].
"""

from __future__ import annotations

import argparse
from pathlib import Path

from walkback.cli.run_names import find_cards, run_path
from walkback.core.errors import EXIT_DONE

_CHOICES = ("text", "md", "tex", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "diagnosed runs, folders of those, or report.json files"
    parser.add_argument("cards", nargs="+", type=run_path, metavar="RUN", help=what)
    parser.add_argument(
        "--format", choices=_CHOICES, help="format to write (default: by the ending of --out, otherwise text)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of printing")


def run(args: argparse.Namespace) -> int:
    from walkback.core.files import friendly_os_errors, write_atomic
    from walkback.judge.card import read_card
    from walkback.report.reporting import reporting

    paths = dict.fromkeys(path for given in args.cards for path in find_cards(given))
    text = reporting([read_card(path) for path in paths], _format_of(args))
    if args.out is None:
        print(text, end="")
        return EXIT_DONE
    with friendly_os_errors(args.out.parent, "create"):
        args.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(args.out, text.encode())
    print(args.out)
    return EXIT_DONE


def _format_of(args: argparse.Namespace) -> str:
    ending = "" if args.out is None else args.out.suffix.removeprefix(".")
    return args.format or (ending if ending in _CHOICES else "text")
