"""Open and read regular files: no links, no special files, and no more bytes than a file of its kind can have.

A link in a folder from somebody else can lead anywhere, a fifo blocks its reader, and /dev/zero has no end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors, kind_of_file

Fault = Callable[[str], InputError]
"""Makes the error of a file from a phrase that completes "FILE ...", such as "is not JSON"."""

MIB = 2**20
TEXT_BYTES = 64 * MIB
"""The most that a text file may have: the largest of walkback's own have a few MiB."""


def fault_of(file: object, remedy: str) -> Fault:
    """The faults of a file, each with the same sentence about what to do."""
    return lambda why: InputError(f"{file} {why}. {remedy}")


def open_regular(path: Path, fault: Fault, *, follow: bool = False) -> BufferedReader:
    """Open a regular file for reading. `follow` is for files that the user names: they may be links."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    with friendly_os_errors(path, "read"):
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK) and path.is_symlink() and not follow:
                raise fault("is a link; expected the file itself") from error
            if error.errno == errno.ENXIO:  # A socket, or a device without hardware.
                raise fault("is a special file; expected a regular one") from error
            raise
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise fault(f"is {kind_of_file(mode)}; expected a regular file")
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise


def read_bytes(path: Path, fault: Fault, *, limit: int = TEXT_BYTES, follow: bool = False) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    with open_regular(path, fault, follow=follow) as file, friendly_os_errors(path, "read"):
        size = os.fstat(file.fileno()).st_size
        if size <= limit:
            data = file.read(limit + 1)  # A file of /proc has no size, and one that grows has another.
            if len(data) <= limit:
                return data
        raise fault(f"has {max(size, limit + 1):,} bytes; expected at most {limit:,}")


def read_text(path: Path, fault: Fault, *, limit: int = TEXT_BYTES, follow: bool = False) -> str:
    """The content of a regular file of UTF-8 text."""
    return decoded(read_bytes(path, fault, limit=limit, follow=follow), fault)


def decoded(data: bytes, fault: Fault) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fault(f"is not UTF-8 text ({error.reason} at byte {error.start})") from error
