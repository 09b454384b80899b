"""Where data sets are kept, and how a folder is put there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from walkback.core.errors import InputError
from walkback.core.files import flush, friendly_os_errors


def data_root(explicit: Path | None = None) -> Path:
    """The folder of all data sets: the one given, else $WALKBACK_DATA, else one in the user's cache."""
    if explicit is not None:
        return explicit.expanduser()
    named = os.environ.get("WALKBACK_DATA", "")
    if named:
        return Path(named).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG rules say that a relative path is to be ignored; an unset variable gives one too.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "walkback" / "data"


@contextlib.contextmanager
def lock(root: Path, name: str) -> Iterator[None]:
    """Hold `name` in `root` for this process, so that no second one cleans up what this one is still writing."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock; there, two gets at once are the user's risk.
        yield
        return
    with friendly_os_errors(root, "use"):
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"Another process is getting '{name}' into '{root}' right now. Wait for it to end, then try again."
            ) from error
        yield
    finally:
        os.close(descriptor)


def work_folder(root: Path, name: str) -> Path:
    """A fresh hidden folder for downloads of `name`; `clean_up` removes it, whoever left it."""
    folder = root / f".{name}.work"
    with friendly_os_errors(folder, "use"):
        folder.mkdir(parents=True)
    return folder


def clean_up(root: Path, name: str) -> None:
    """Remove what a killed run left behind; a folder it had moved aside and not yet replaced comes back."""
    aside = root / f".{name}.old"
    with friendly_os_errors(root, "use"):
        if aside.exists() and not (root / name).exists():
            os.replace(aside, root / name)
        for leftover in (aside, root / f".{name}.new", root / f".{name}.work"):
            if leftover.exists():
                shutil.rmtree(leftover)


def replace_folder(root: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Put a folder filled by `fill` at root/name in one step; on any failure what was there before stays.

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
