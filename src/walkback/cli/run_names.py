"""Runs and cards as they are named on the command line: a path, or the beginning of a run's name or of its hash."""

from __future__ import annotations

from pathlib import Path

from walkback.core.errors import InputError

RUNS = Path("runs")
"""The folder that `walkback train` writes into, searched for names that are no paths."""
_MOST_NAMED = 6


def run_path(text: str) -> Path:
    """The path itself if it exists; else the one run whose name or hash begins with its last part.

    Looked up in the folder that the text names, or in the present folder and in ./runs. A text that names nothing is
    returned as it is: the command that reads it says what is missing.
    """
    given = Path(text)
    if not text or given.exists():
        return given
    folders = [given.parent] if given.parent != Path() else [Path(), RUNS]
    exact = [folder / given.name for folder in folders if (folder / given.name).exists()]
    found = exact or [path for folder in folders for path in _beginning_with(given.name, folder)]
    if len(found) > 1:
        named = ", ".join(str(path) for path in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise InputError(f"'{text}' is the beginning of {len(found)} runs: {named}{more}. Write more of the name.")
    return found[0] if found else given


def _beginning_with(start: str, folder: Path) -> list[Path]:
    """The folders of runs and cards in `folder` whose name, or the hash at its end, begins with `start`."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if (path.name.startswith(start) or path.name.rpartition("_")[2].startswith(start)) and _is_run(path)
    )


def _is_run(path: Path) -> bool:
    return (path / "run.json").is_file() or (path / "report.json").is_file()


def find_cards(given: Path, empty: bool = False) -> list[Path]:
    """The card at a path: the file itself, the one in a folder, or those in its subfolders; `empty` allows none."""
    from walkback.report.save import CARD

    if given.is_file():
        return [given]
    if not given.is_dir():
        raise InputError(f"There is no file or folder {given}. Name a {CARD} or a folder with one.")
    if (given / CARD).is_file():
        return [given / CARD]
    found = sorted(path for path in given.glob(f"*/{CARD}") if not path.parent.name.startswith("."))
    if not found and not empty:
        raise InputError(
            f"There is no {CARD} in {given}. `walkback diagnose {given}` writes one for each finished run."
        )
    return found
