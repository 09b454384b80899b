"""Write audit cards as Markdown, LaTeX, one self-contained HTML page, or a section of a model card.

example: walkback render runs/dfa* --format html

Reads each run's report.json, which `walkback diagnose` writes; measures nothing. In the folder of an audit it also
rewrites the overview (audit.json), with the curves of the training logs in that folder; in any other folder of runs,
audits or studies it writes index.html, a table of the verdicts with links. `--format modelcard` is the
section and the metadata for a model card on the Hugging Face hub.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from walkback.cli.run_names import find_cards, run_path
from walkback.core.errors import EXIT_DONE, InputError

_CHOICES = ("md", "tex", "html", "json", "modelcard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "report.json files, folders with one, or folders that contain such folders"
    parser.add_argument("cards", nargs="+", type=run_path, metavar="RUN_OR_CARD", help=what)
    parser.add_argument("--format", nargs="+", choices=_CHOICES, default=("md", "tex", "html"), help="formats to write")
    parser.add_argument("--out", type=Path, help="folder for the files (default: beside each card)")
    parser.add_argument("--stdout", action="store_true", help="print one card in one format and write no file")


def run(args: argparse.Namespace) -> int:
    from walkback.auditing.audit_files import OVERVIEW, OVERVIEW_FORMATS, read_overview, write_overview
    from walkback.core.files import friendly_os_errors, write_atomic
    from walkback.judge.card import read_card
    from walkback.report.formats import ending, render

    indexed = [given for given in args.cards if _has_index(given)]
    pages = {given: index_path(given) for given in indexed if "html" in args.format and not args.out}
    paths = list(dict.fromkeys(path for given in args.cards for path in find_cards(given, empty=given in indexed)))
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
            target = targets[path].with_name(f"{targets[path].name}.{ending(form)}")
            if target.resolve() != path.resolve():  # Never overwrite the card itself.
                write_atomic(target, render(card, form).encode())
            print(target)
    for folder, table in audits.items():
        names = {path.resolve().parent.name: f"{target.name}.html" for path, target in targets.items()}
        where = args.out or folder
        other = [form for form in OVERVIEW_FORMATS if form != "json" or where.resolve() != folder.resolve()]
        kept = [form for form in forms if form in other]
        for path in write_overview(table, folder, where, kept, names if args.out else None):
            print(path)
    for folder, target in pages.items():
        write_index(folder, target)
        print(target)
    return EXIT_DONE


def _has_index(folder: Path) -> bool:
    """Whether a folder gets an index of what is in it: it is neither one card nor one audit."""
    from walkback.auditing.audit_files import OVERVIEW
    from walkback.report.save import CARD

    if not folder.is_dir() or (folder / CARD).is_file() or (folder / f"{OVERVIEW}.json").is_file():
        return False
    return any(any(folder.glob(f"*/{name}")) for name in (CARD, f"{OVERVIEW}.json", "index.html"))


def index_path(folder: Path) -> Path:
    """Where the index of a folder is written; a page that something else wrote is not replaced."""
    from walkback.report.index_page import GENERATOR, INDEX

    target = folder / INDEX
    if target.is_file() and GENERATOR not in target.read_text(encoding="utf-8", errors="replace"):
        raise InputError(
            f"{target} was not written by `walkback render` and is not replaced. Move it away, or name the cards."
        )
    return target


def write_index(folder: Path, target: Path) -> None:
    """Write the index of a folder of runs, audits or studies from what is stored there."""
    from walkback.auditing.audit_files import OVERVIEW, read_overview
    from walkback.core.files import write_atomic
    from walkback.judge.card import read_card
    from walkback.report.index_page import entries_of_audit, entry_of_card, index_page
    from walkback.report.save import CARD

    shown = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    entries = [
        entry_of_card(read_card(path / CARD), f"{path.name}/report.html") for path in shown if (path / CARD).is_file()
    ]
    for path in (path for path in shown if (path / f"{OVERVIEW}.json").is_file()):
        entries += entries_of_audit(read_overview(path), path.name, f"{path.name}/{OVERVIEW}.html")
    others = [(path.name, f"{path.name}/index.html") for path in shown if (path / "index.html").is_file()]
    write_atomic(target, index_page(folder.resolve().name, entries, others).encode())


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
