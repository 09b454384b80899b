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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors, open_to_change, write_atomic
from walkback.core.reading.json_text import LINE_BYTES, parse_json_line, read_object
from walkback.core.reading.regular_files import Fault, fault_of, open_regular
from walkback.core.reading.schema import Schema, check_schema
from walkback.judge.detector_alarms import check_log_row
from walkback.judge.thresholds import DiagnosticThresholds

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
        with friendly_os_errors(path, "write"), open_to_change(path) as file:
            file.write(_line(row).encode())

    def update_record(self, facts: Mapping[str, Any]) -> None:
        """Update the record and replace its file atomically."""
        self.record |= facts
        text = json.dumps(self.record, indent=1, allow_nan=False) + "\n"
        write_atomic(self.folder / WATCH_RECORD, text.encode())


def read_record(folder: Path) -> dict[str, Any]:
    path = folder / WATCH_RECORD
    fault = _fault(path)
    record = read_object(path, fault)
    if record.get("format") != _FORMAT:
        raise InputError(f"{path} is not the record of a watched training that this version of walkback can read.")
    check_schema(record, _RECORD, fault)
    return record


def thresholds_of(record: Mapping[str, Any], folder: Path) -> DiagnosticThresholds:
    """The thresholds that a training is watched with."""
    try:
        return DiagnosticThresholds(**record["thresholds"])
    except (TypeError, ValueError, InputError) as error:
        raise _fault(folder / WATCH_RECORD)(f"has thresholds that cannot be used ({error})") from error


def read_rows(folder: Path) -> list[WatchRow]:
    """Every complete line of the log; a last line cut off by a kill is left out."""
    log = GrowingLog(folder)
    return list(log.new_rows())


class GrowingLog:
    """The log of a training that may still run, each line read once and no line kept."""

    def __init__(self, folder: Path):
        self.path = folder / WATCH_LOG
        self._read = self._lines = 0
        """Bytes and lines that were read."""
        self._file: tuple[int, int] | None = None

    def is_replaced(self) -> bool:
        """Whether the file is another one than before, or shorter: then everything is to be read again."""
        try:
            facts = self.path.stat()
        except FileNotFoundError:
            return self._file is not None
        return self._file is not None and ((facts.st_dev, facts.st_ino) != self._file or facts.st_size < self._read)

    def new_rows(self) -> Iterator[WatchRow]:
        """The rows of the complete lines since the last call."""
        if not self.path.exists():
            return
        fault = _fault(self.path)
        with open_regular(self.path, fault) as file, friendly_os_errors(self.path, "read"):
            facts = os.fstat(file.fileno())
            self._file = facts.st_dev, facts.st_ino
            file.seek(self._read)
            # A line of more bytes than that is refused where it is parsed.
            while line := file.readline(LINE_BYTES + 1):
                if len(line) <= LINE_BYTES and not line.endswith(b"\n"):
                    return
                row = parse_json_line(line, self._lines + 1, fault)
                check_schema(row, _ROW, fault)
                check_log_row(row, fault)
                self._read, self._lines = self._read + len(line), self._lines + 1
                yield row


def _fault(path: Path) -> Fault:
    return fault_of(path, "Move that folder away and watch again.")


_TEXT: Schema = {"type": ["string", "null"]}
_STEP: Schema = {"type": "integer", "minimum": 0, "maximum": 2**62}
_RECORD: Schema = {
    "required": ["status", "thresholds"],
    "properties": {
        "status": {"enum": ["running", "done", "stopped", "interrupted", "failed"]},
        "thresholds": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "every": {"type": ["integer", "null"]},
        "pid": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        **dict.fromkeys(("reason", "verdict", "method", "model", "host", "sample_hash"), _TEXT),
    },
}
_ROW: Schema = {"required": ["step"], "properties": {"step": _STEP, "epoch": {"type": ["number", "null"]}}}


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
