"""Write audit cards as Markdown, LaTeX or one self-contained HTML page.

example: walkback render runs/dfa* --format html

Reads each run's report.json, which `walkback diagnose` writes; measures nothing. In the folder of an audit it also
rewrites the overview (audit.json), with the curves of the training logs in that folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from walkback.cli.run_names import find_cards, run_path
from walkback.core.errors import EXIT_DONE, InputError

_CHOICES = ("md", "tex", "html", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "report.json files, folders with one, or folders that contain such folders"
    parser.add_argument("cards", nargs="+", type=run_path, metavar="RUN_OR_CARD", help=what)
    parser.add_argument("--format", nargs="+", choices=_CHOICES, default=("md", "tex", "html"), help="formats to write")
    parser.add_argument("--out", type=Path, help="folder for the files (default: beside each card)")
    parser.add_argument("--stdout", action="store_true", help="print one card in one format and write no file")


def run(args: argparse.Namespace) -> int:
    from walkback.auditing.audit_files import OVERVIEW, read_overview, write_overview
    from walkback.core.files import friendly_os_errors, write_atomic
    from walkback.judge.card import read_card
    from walkback.report.formats import render

    paths = list(dict.fromkeys(path for given in args.cards for path in find_cards(given)))
    forms = list(dict.fromkeys(args.format))
    if args.stdout and (len(paths) != 1 or len(forms) != 1 or args.out):
        raise InputError(
            f"--stdout prints one card in one format; got {len(paths)} cards and the formats {', '.join(forms)}"
            f"{' and --out' if args.out else ''}. Name one card and one --format, or leave --stdout out."
        )
    # Read all cards before writing anything, so that a damaged card leaves no half of the output.
    cards = {path: read_card(path) for path in paths}
    folders = dict.fromkeys(given for given in args.cards if (given / f"{OVERVIEW}.json").is_file())
    audits = {folder: read_overview(folder) for folder in folders}
    if args.out and len(audits) > 1:
        raise InputError(f"--out takes the overview of one audit; got {len(audits)}. Render them one by one.")
    if args.stdout:
        print(render(cards[paths[0]], forms[0]), end="")
        return EXIT_DONE
    targets = _plan(paths, args.out)
    if args.out:
        with friendly_os_errors(args.out, "create"):
            args.out.mkdir(parents=True, exist_ok=True)
    for path, card in cards.items():
        for form in forms:
            target = targets[path].with_name(f"{targets[path].name}.{form}")
            if target.resolve() != path.resolve():  # Never overwrite the card itself.
                write_atomic(target, render(card, form).encode())
            print(target)
    for folder, table in audits.items():
        names = {path.resolve().parent.name: f"{target.name}.html" for path, target in targets.items()}
        where = args.out or folder
        kept = [form for form in forms if form != "json" or where.resolve() != folder.resolve()]
        for path in write_overview(table, folder, where, kept, names if args.out else None):
            print(path)
    return EXIT_DONE


def _plan(paths: Sequence[Path], out: Path | None) -> dict[Path, Path]:
    """The output path of each card, without file endings; refuses two cards with the same name."""
    from walkback.report.save import CARD

    if out is None:
        return {path: path.with_name(path.stem) for path in paths}
    names = {path: path.resolve().parent.name if path.name == CARD else path.stem for path in paths}
    for path, name in names.items():
        same = [other for other in paths if names[other] == name and other != path]
        if same:
            raise InputError(
                f"{path} and {same[0]} would both be written as {name}. Render them into folders of their own."
            )
    return {path: out / name for path, name in names.items()}
