"""The data folder: its location, locking, and atomic replacement of a folder in it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from walkback.core.errors import InputError
from walkback.core.files import flush, friendly_os_errors
from walkback.core.locks import LockHeldError, acquire_lock


def data_root(explicit: Path | None = None) -> Path:
    """The folder of all data sets: `explicit`, else $WALKBACK_DATA, else a folder in the user's cache."""
    if explicit is not None:
        return explicit.expanduser()
    named = os.environ.get("WALKBACK_DATA", "")
    if named:
        return Path(named).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification ignores relative paths; an unset variable gives one, too.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "walkback" / "data"


@contextlib.contextmanager
def lock(root: Path, name: str) -> Iterator[None]:
    """Lock `name` in `root` for this process, so that no other process removes files that are still being written."""
    with friendly_os_errors(root, "use"):
        root.mkdir(parents=True, exist_ok=True)
    try:
        held = acquire_lock(root / f".{name}.lock", wait=False)
    except LockHeldError as error:
        raise InputError(
            f"Another process is getting '{name}' into '{root}' right now. Wait for it to end, then try again."
        ) from error
    try:
        yield
    finally:
        held.release()


def work_folder(root: Path, name: str) -> Path:
    """Make a hidden folder for downloads of `name`; `clean_up` removes it if a killed process leaves it behind."""
    folder = root / f".{name}.work"
    with friendly_os_errors(folder, "use"):
        folder.mkdir(parents=True)
    return folder


def clean_up(root: Path, name: str) -> None:
    """Remove the leftovers of a killed process, and restore a folder that it moved aside and did not replace."""
    aside = root / f".{name}.old"
    with friendly_os_errors(root, "use"):
        if aside.exists() and not (root / name).exists():
            os.replace(aside, root / name)
        for leftover in (aside, root / f".{name}.new", root / f".{name}.work"):
            if leftover.exists():
                shutil.rmtree(leftover)


def replace_folder(root: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Replace root/name atomically by a folder that `fill` writes; on any failure the old folder stays.

    The caller holds `lock` and has called `clean_up`, so the hidden names are free.
    """
    target, fresh, aside = root / name, root / f".{name}.new", root / f".{name}.old"
    with friendly_os_errors(target, "use"):
        try:
            fresh.mkdir(parents=True)
            fill(fresh)
            for path in (*fresh.iterdir(), fresh):
                flush(path)
            if target.exists():
                os.replace(target, aside)
            os.replace(fresh, target)
            flush(root)
        except BaseException:
            if aside.exists() and not target.exists():
                os.replace(aside, target)
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    return target
