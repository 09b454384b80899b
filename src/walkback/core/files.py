"""Atomic file writes: a killed process, a full disk or a second writer loses no data."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from walkback.core.errors import InputError

_ADVICE = {
    errno.ENOSPC: "The disk is full: free some space, or use another folder.",
    errno.EDQUOT: "Your disk quota is used up: free some space, or use another folder.",
    errno.EROFS: "The file system is read-only: use another folder.",
    errno.EACCES: "You may not write there: use another folder or change its permissions.",
    errno.EPERM: "You may not write there: use another folder or change its permissions.",
    errno.EEXIST: "Something of that name is in the way: use another folder.",
    errno.ENOTDIR: "A part of that path is a file, not a folder: use another folder.",
    errno.ENAMETOOLONG: "The name is too long for this file system.",
}


@contextmanager
def friendly_os_errors(path: Path, doing: str) -> Iterator[None]:
    """Re-raise operating-system and UTF-8 decoding errors about `path` as an InputError that says what to do.

    `doing` is the verb of the message, as in "Could not write PATH".
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(f"Could not {doing} {path}: it is not UTF-8 text. Save it as UTF-8 and try again.") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        advice = _ADVICE.get(error.errno or 0, "Check the path and try again.")
        raise InputError(f"Could not {doing} {error.filename or path}: {reason}. {advice}") from error


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the contents of `path`, or leave it unchanged: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with friendly_os_errors(path, "write"):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        flush(path.parent)


def drop_leftovers(path: Path) -> None:
    """Remove the temporary files of `path` that killed writes left behind."""
    with friendly_os_errors(path, "clean up"):
        for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            leftover.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """fsync a file or folder, so that a power failure cannot leave a renamed but empty file."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder for this.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
