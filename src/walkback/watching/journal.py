"""The files that a watched training writes while it runs.

| file | content |
|---|---|
| `watch.json` | the record: settings, status, when each detector first failed |
| `watch.jsonl` | one line per measurement, append-only; a kill loses at most the line being written |

The card (`report.json`, `report.html`, ...) is written into the same folder at the end.
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
        """The rows found on opening; later rows are written to the file only."""
        existing = [name for name in (WATCH_RECORD, WATCH_LOG) if (folder / name).exists()]
        if existing and not resume:
            raise InputError(
                f"{folder} already contains a watched training ({existing[0]}). "
                "Pass resume=True to continue it, or choose another out=."
            )
        if existing:
            self.record, self.rows = read_record(folder), read_rows(folder)

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        """Begin, or continue after step `at`; rows of later steps, from an interrupted training, are dropped."""
        recorded = self.record.get("sample_hash")
        if recorded is not None and recorded != facts["sample_hash"]:
            raise InputError(
                f"{self.folder} was watched on other evaluation samples, so new values are not comparable with it. "
                "Give the same samples in the same order, or choose another out=."
            )
        self.rows = [row for row in self.rows if row["step"] <= at]
        lines = "".join(_line(row) for row in self.rows)
        with friendly_os_errors(self.folder, "create"):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / WATCH_LOG, lines.encode())
        self.update_record(
            {"format": _FORMAT, **facts, "status": "running", "reason": "", "pid": os.getpid(), "host": _host()}
        )

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row to the log."""
        path = self.folder / WATCH_LOG
        with friendly_os_errors(path, "write"), path.open("ab") as file:
            file.write(_line(row).encode())

    def update_record(self, facts: Mapping[str, Any]) -> None:
        """Update the record and replace its file atomically."""
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
    """Every complete line of the log; a last line cut off by a kill is left out."""
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


def writer_has_died(record: Mapping[str, Any]) -> bool:
    """Whether the process that writes the journal ended without closing it; False if it runs on another machine."""
    if record.get("status") != "running" or record.get("host") != _host():
        return False
    try:
        os.kill(int(record["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return False


def first_alarms_text(first: Mapping[str, int | None]) -> str:
    """When each detector first failed, as text."""
    return ", ".join(f"{name} {'never' if step is None else f'at step {step}'}" for name, step in first.items())


def alarm_names(alarms: Sequence[Sequence[str]]) -> list[str]:
    """The alarms as text, such as `D1 and D2`."""
    return [" and ".join(alarm) for alarm in alarms]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _host() -> str:
    return socket.gethostname()
