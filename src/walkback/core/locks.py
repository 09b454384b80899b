"""Locks between processes: a file, locked until its process lets go or ends, however it ends."""

from __future__ import annotations

import stat
from pathlib import Path

from filelock import FileLock, Timeout

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors

POLL = 0.05
"""Seconds between two attempts to get a lock that another process holds."""


class LockHeldError(Exception):
    """Another process holds the lock; the caller says which work that process does."""


def acquire_lock(path: Path, wait: bool = True) -> FileLock:
    """Lock the file at `path`, which is created where there is none, and return the lock; `release` lets go of it.

    Without `wait`, a lock that is held raises LockHeldError. A link is refused, and any file that others link to:
    opening it would touch a file elsewhere.
    """
    # Of this thread or another: a lock taken in one may be released in another.
    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    with friendly_os_errors(path, "lock"):
        _require_plain_file(path)
        try:
            lock.acquire(poll_interval=POLL)
        except Timeout:  # An OSError, which is no fault of the disk here.
            raise LockHeldError(str(path)) from None
    return lock


def _require_plain_file(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        raise InputError(f"Could not lock {path}: it is a link, a folder or a special file. Remove it and try again.")
