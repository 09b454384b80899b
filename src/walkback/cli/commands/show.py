"""Print stored cards and audits, verdict first, at once: nothing is measured and nothing is written.

examples: walkback show runs
          walkback show dfa-scale
          walkback show report.json --full

For one card: the verdict, the claims with their reasons, the checks, layers and blocks. For several: a line for each
method over its seeds, and why it may claim less. Exit code 0; 3 is a usage or input error.
"""

from __future__ import annotations

import argparse
import json

from walkback.cli.run_names import find_cards, run_path
from walkback.cli.terminal import marks, paint, printable
from walkback.core.errors import EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "runs, report.json files, or folders that contain runs; the beginning of a run's name is enough"
    parser.add_argument("cards", nargs="+", type=run_path, metavar="RUN_OR_CARD", help=what)
    parser.add_argument("--full", action="store_true", help="print every number")
    parser.add_argument("--json", action="store_true", help="print one card per line as JSON")


def run(args: argparse.Namespace) -> int:
    from walkback.judge.audit_table import make_audit_table
    from walkback.judge.card import read_card
    from walkback.report.overview import overview_text
    from walkback.report.plain_text import stored_card_text
    from walkback.report.verdict_lines import summary_lines

    paths = list(dict.fromkeys(path for given in args.cards for path in find_cards(given)))
    cards = [read_card(path) for path in paths]
    if args.json:
        for card in cards:
            print(json.dumps(card, allow_nan=False))
        return EXIT_DONE
    print(printable("\n".join(summary_lines(make_audit_table(cards), marks(), paint))))
    if len(cards) == 1:
        print(stored_card_text(cards[0], args.full))
    elif args.full:
        print(f"\n{overview_text(cards)}")
    return EXIT_DONE
