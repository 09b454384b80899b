"""Explain a term of the tables, or a diagnostic with its formula, threshold, and when it misleads.

examples: walkback explain D2
          walkback explain "used cos"

Without a term the diagnostics and all terms are listed.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap

from walkback.core.catalog import Entry
from walkback.core.errors import EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("term", nargs="*", help="a diagnostic, or a term as a table shows it")


def run(args: argparse.Namespace) -> int:
    from walkback.judge.check import CHECKS
    from walkback.judge.glossary import GLOSSARY
    from walkback.judge.table_heads import explained

    entries = {entry.name.lower(): entry for entry in CHECKS.entries()}
    term = " ".join(args.term)
    if not term:
        for entry in entries.values():
            print(f"{entry.name:<14}{entry.summary}")
        print("\n".join(["", *_wrapped(f"Terms: {', '.join(GLOSSARY)}.")]))
    elif term.lower() in entries:
        print("\n".join(_lines(entries[term.lower()])))
    else:
        print("\n".join(line for name, text in explained(term).items() for line in _wrapped(f"{name}: {text}")))
    return EXIT_DONE


def _lines(entry: Entry) -> list[str]:
    lines = _wrapped(f"{entry.name}: {entry.summary}", "")
    for key, value in entry.facts.items():
        lines += ["", *_wrapped(f"{key}: {value}")]
    return lines


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    width = min(shutil.get_terminal_size().columns, 100)
    return textwrap.wrap(text, width, subsequent_indent=indent)
