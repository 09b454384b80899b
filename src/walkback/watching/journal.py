"""What a watched training leaves on disk while it runs.

| file | what it holds |
|---|---|
| `watch.json` | what is watched and how, status, when each detector first fired |
| `watch.jsonl` | one line per look, append-only; a kill costs at most the line being written |

The card (`report.json`, `report.html`, ...) is written beside them at the end.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors, write_atomic

WATCH_RECORD, WATCH_LOG = "watch.json", "watch.jsonl"
_FORMAT = 1

WatchRow = dict[str, Any]


class Journal:
    """The folder of one watched training."""

    def __init__(self, folder: Path, resume: bool):
        self.folder = folder
        self.record: dict[str, Any] = {}
        self.rows: list[WatchRow] = []
        """Those found on opening; later ones are only written."""
        there = [name for name in (WATCH_RECORD, WATCH_LOG) if (folder / name).exists()]
        if there and not resume:
            raise InputError(
                f"{folder} holds a watched training already ({there[0]}). "
                "Pass resume=True to go on with it, or choose another out=."
            )
        if there:
            self.record, self.rows = read_record(folder), read_rows(folder)

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        """Begin, or go on after step `at`: what an interrupted training had seen later than that is forgotten."""
        known = self.record.get("sample_hash")
        if known is not None and known != facts["sample_hash"]:
            raise InputError(
                f"{self.folder} was watched on other evaluation samples, so its numbers could not be compared with new "
                "ones. Give the same samples in the same order, or choose another out=."
            )
        self.rows = [row for row in self.rows if row["step"] <= at]
        lines = "".join(_line(row) for row in self.rows)
        with friendly_os_errors(self.folder, "create"):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / WATCH_LOG, lines.encode())
        self.note({"format": _FORMAT, **facts, "status": "running", "reason": "", "pid": os.getpid(), "host": _host()})

    def append(self, row: Mapping[str, Any]) -> None:
        path = self.folder / WATCH_LOG
        with friendly_os_errors(path, "write"), path.open("ab") as file:
            file.write(_line(row).encode())

    def note(self, facts: Mapping[str, Any]) -> None:
        """Change the record; the file is replaced whole."""
        self.record |= facts
        text = json.dumps(self.record, indent=1, allow_nan=False) + "\n"
        write_atomic(self.folder / WATCH_RECORD, text.encode())


def read_record(folder: Path) -> dict[str, Any]:
    path = folder / WATCH_RECORD
    try:
        with friendly_os_errors(path, "read"):
            record = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} cannot be read ({error}). Move that folder away and watch again.") from error
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise InputError(f"{path} is not the record of a watched training that this version of walkback can read.")
    return record


def read_rows(folder: Path) -> list[WatchRow]:
    """Every whole line; one that a kill cut off is left out."""
    path = folder / WATCH_LOG
    with friendly_os_errors(path, "read"):
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError as error:
        raise InputError(f"{path} cannot be read ({error}). Move that folder away and watch again.") from error
    if not all(isinstance(row, dict) and isinstance(row.get("step"), int) for row in rows):
        raise InputError(f"{path} has lines without a step. Move that folder away and watch again.")
    return rows


def is_alone(record: Mapping[str, Any]) -> bool:
    """Whether the process that writes a journal has ended without saying so; of another machine this is not known."""
    if record.get("status") != "running" or record.get("host") != _host():
        return False
    try:
        os.kill(int(record["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return False


def described(first: Mapping[str, int | None]) -> str:
    """When each detector fired, in words."""
    return ", ".join(f"{name} {'never' if step is None else f'at step {step}'}" for name, step in first.items())


def joined_rows(alarms: Sequence[Sequence[str]]) -> list[str]:
    return [" and ".join(alarm) for alarm in alarms]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _host() -> str:
    return socket.gethostname()
