"""Dying at a chosen moment: the next file operation is the last one, as it is after `kill -9`."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir"}
"""Audit events of operations that change a folder; opening for writing and fsync are counted beside them."""
DIED = 9


def die_before(operation: int) -> None:
    """End this process, without any clean-up, when it is about to do its n-th file operation (from 0)."""
    left = operation

    def count() -> None:
        nonlocal left
        if left == 0:
            os._exit(DIED)
        left -= 1

    def heard(event: str, words: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(words[2], int) and words[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or is_write:
            count()

    def fsync(descriptor: int, _real: Callable[[int], None] = os.fsync) -> None:
        count()
        _real(descriptor)

    os.fsync = fsync
    sys.addaudithook(heard)


def in_child(work: Callable[[], None]) -> int:
    """Do `work` in a forked process and return its exit status; 1 where it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Forking beside pytest-xdist's threads is fine for files.
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def dies(operation: int, work: Callable[[], None]) -> bool:
    """Do `work` in a child that dies before its n-th file operation; False where it needs fewer and ends well."""

    def doomed() -> None:
        die_before(operation)
        work()

    status = in_child(doomed)
    assert status in (0, DIED), f"the work failed by itself, with status {status}"
    return status == DIED


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder with its hash, and every folder: equal where nothing was changed."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }
