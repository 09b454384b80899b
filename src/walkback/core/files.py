"""Writing files: a kill, a full disk or a second writer loses no data, and no write follows a link."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

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
    errno.ELOOP: "Its links lead in a circle: name another path.",
    errno.EMFILE: "This process may not open more files: raise the limit (`ulimit -n 4096`), or train fewer at once.",
    errno.ENFILE: "This machine has no free file handles: try again when it is less busy.",
    errno.ENOMEM: "There is not enough memory: try again when the machine is less busy.",
}
_DAY = 86_400.0
_MAY_NOT_READ = "You may not read it: change its permissions."


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
        if doing == "read" and error.errno in (errno.EACCES, errno.EPERM):
            advice = _MAY_NOT_READ
        raise InputError(f"Could not {doing} {error.filename or path}: {reason}. {advice}") from error


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the contents of `path`, or leave it unchanged: temporary file, fsync, rename, fsync of the folder."""
    temporary = temporary_path(path)
    with friendly_os_errors(path, "write"):
        try:
            # Whatever is there, such as a link put there by somebody else, is removed and not written through.
            temporary.unlink(missing_ok=True)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        flush(path.parent)


def open_to_change(path: Path) -> BinaryIO:
    """Open a file to append to it or cut it off, and create it where there is none.

    Refuses a link, a special file, and a file that has another name elsewhere: they would be changed, too.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    with friendly_os_errors(path, "write"):
        try:
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            # O_NONBLOCK makes a fifo without a reader and a socket ENXIO, O_NOFOLLOW a link ELOOP.
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
                raise _not_plain(path, kind_of_file(path.lstat().st_mode)) from error
            raise
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
                is_plain = stat.S_ISREG(facts.st_mode)
                raise _not_plain(path, "a file with another name" if is_plain else kind_of_file(facts.st_mode))
            return os.fdopen(descriptor, "r+b")
        except BaseException:
            os.close(descriptor)
            raise


def make_subfolder(path: Path) -> None:
    """Create a folder inside one of walkback's own; refuse a link, which could lead anywhere."""
    with friendly_os_errors(path, "create"):
        path.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            raise _not_plain(path, "a link", "a folder")


def kind_of_file(mode: int) -> str:
    """What a file of this mode is, in words."""
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a fifo", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a file" if stat.S_ISREG(mode) else "a device")


def _not_plain(path: Path, kind: str, expected: str = "a file of its own") -> InputError:
    return InputError(
        f"{path} is {kind}; expected {expected}: what it leads to would be changed. Nothing was changed. Remove it, or "
        "put a copy in its place."
    )


def temporary_path(path: Path) -> Path:
    """Where this process writes what will be at `path`; the name says by which machine and process."""
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}.tmp")


def leftovers(path: Path) -> list[Path]:
    """The temporary files or folders of `path` whose processes have ended.

    Of another machine, which may write into the same folder, those of a day ago; of older versions all.
    """
    found = []
    for each in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        machine, dash, process = each.name.removesuffix(".tmp").rpartition(".")[2].rpartition("-")
        if not dash or not process.isdecimal() or _has_ended(each, machine, int(process)):
            found.append(each)
    return found


def _has_ended(temporary: Path, machine: str, process: int) -> bool:
    if machine != _machine():
        with suppress(OSError):
            return time.time() - temporary.lstat().st_mtime > _DAY
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


@cache
def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def drop_leftovers(path: Path) -> None:
    """Remove the temporary files of `path` that killed writes left behind."""
    with friendly_os_errors(path, "clean up"):
        for leftover in leftovers(path):
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
