"""A run on disk: a folder that is complete, or resumable, or refused with an error that says what is wrong.

| file | what it holds |
|---|---|
| `run.json` | configuration, provenance, status, result, hashes of the final files and of itself |
| `model.safetensors` | final parameters |
| `rule.safetensors` | the rule's state, where it has any |
| `initial.safetensors`, `correct.safetensors` | of a user's own training function |
| `resume.safetensors` | while unfinished: parameters, optimiser, rule state, epoch, log length, hashes, in ONE file |
| `train.jsonl` | one line per epoch, append-only |
| `lock` | while unfinished: empty file, locked by the process that trains |

Every file is checked against its hash before it is used. Runs of 0.8.1 and older have hashes of `model.safetensors` and
`rule.safetensors` only.

Arrays are numpy arrays, so that reading a run needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from filelock import FileLock

from walkback.core.content_hash import SHA256, arrays_hash, document_hash, with_hash
from walkback.core.errors import InputError
from walkback.core.files import (
    flush,
    friendly_os_errors,
    kind_of_file,
    leftovers,
    open_to_change,
    temporary_path,
    write_atomic,
)
from walkback.core.locks import LockHeldError, acquire_lock
from walkback.core.reading.array_files import parse_safetensors, read_arrays_file, read_metadata, read_safetensors
from walkback.core.reading.json_text import parse_json, parse_json_lines, read_object
from walkback.core.reading.regular_files import Fault, read_bytes
from walkback.core.reading.schema import check_schema
from walkback.judge.detector_alarms import check_log_row
from walkback.runs.measurement_files import EPOCHS_FOLDER
from walkback.runs.record_schema import CHECKPOINT_FACTS, LOG_ROW, check_form

RUN_FORMAT = 1
Arrays = dict[str, np.ndarray]

RECORD, MODEL, RULE, RESUME, LOG = (
    "run.json",
    "model.safetensors",
    "rule.safetensors",
    "resume.safetensors",
    "train.jsonl",
)
PREVIOUS = "resume.previous.safetensors"
"""The second newest checkpoint, kept while a fleet's checkpoints are being written: after a kill in between, all
members still have a checkpoint of one common epoch."""
LOG_HASH = "log_sha256"
"""The key of the log's hash: in a finished run's record, and in a checkpoint, where it covers the log up to there."""
OWN_LOOP = "own_loop"
"""The key of a record, and of a card's provenance, that says which function of a user's trained the run."""
_NO_FILES: Mapping[str, Arrays] = {}
LOCK = "lock"
"""Exists while the run is unfinished. It is a file because other machines of a network file system do not see locks on
folders."""


class RunLockedError(InputError):
    """Another process is training this run; later it is unlocked or finished."""


@dataclass(frozen=True)
class Checkpoint:
    """The contents of `resume.safetensors`."""

    epoch: int
    log_bytes: int
    fleet: tuple[str, ...]
    """The runs trained together: resuming in the same fleet gives the same bits."""
    seconds: float
    arrays: Arrays
    is_hashed: bool = True
    """False for a file of 0.8.1 or older, which has no content hash."""


@dataclass(repr=False)
class Run:
    """One run's folder. `create_run` and `open_run` return one."""

    path: Path
    record: dict[str, Any]
    _lock: FileLock | None = None

    def __repr__(self) -> str:
        from walkback.report.run_notebook import run_words  # Needed in notebooks only, and slow to import.

        return f"<Run {run_words(self.name, self.record)}>"

    def _repr_html_(self) -> str:
        from walkback.report import run_notebook

        return run_notebook.run_html(self.name, self.record, self.log())

    def plot(self) -> Any:
        """Loss, accuracy, growth and deepest gradient by epoch as a matplotlib figure."""
        from walkback.report import run_notebook

        return run_notebook.run_plot(self.name, self.log())

    def to_frame(self) -> Any:
        """The training log as a pandas data frame: one row for each epoch."""
        from walkback.report import run_notebook
        from walkback.report.notebook import data_frame

        return data_frame(run_notebook.log_rows(self.log()))

    def to_dict(self) -> dict[str, Any]:
        """The record: run.json."""
        return dict(self.record)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_done(self) -> bool:
        return bool(self.record["status"] == "done")

    @property
    def lacks_rule_state(self) -> bool:
        """Whether the rule's state was written but its file is missing."""
        return bool(self.record["rule_has_state"]) and not (self.path / RULE).is_file()

    def lock(self) -> None:
        """Keep other processes from training this run at the same time; the system releases the lock when we exit."""
        try:
            self._lock = acquire_lock(self.path / LOCK, wait=False)
        except LockHeldError:
            message = f"Another process is training {self.path}. Wait for it, or use another --out."
            raise RunLockedError(message) from None
        try:
            with friendly_os_errors(self.path, "lock"):
                # The record may have changed since it was read; from here on no other process writes it.
                if open_run(self.path).is_done and not self.is_done:
                    (self.path / LOCK).unlink(missing_ok=True)
                    raise RunLockedError(f"Another process has just finished {self.path}. Give the same command again.")
                for leftover in self.path.glob(".*.tmp"):  # Left by a process that was killed while writing.
                    leftover.unlink()
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def append_log(self, row: Mapping[str, Any]) -> None:
        line = json.dumps(row, allow_nan=False) + "\n"
        with friendly_os_errors(self.path / LOG, "write"), open_to_change(self.path / LOG) as file:
            file.write(line.encode())

    def log(self) -> list[dict[str, Any]]:
        """The training log, one dict per epoch."""
        data = self._log_bytes()
        if self.is_done and self.record.get(LOG_HASH, sha256(data)) != sha256(data):
            raise changed_file(self.path, LOG)
        lines = data.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n") and not self.is_done:
            lines.pop()  # Cut off by a kill or a full disk; --resume writes it again.
        fault = fault_of_run(self.path, LOG)
        rows = list(parse_json_lines(lines, fault))
        for row in rows:
            check_schema(row, LOG_ROW, fault)
            check_log_row(row, fault)
        return rows

    def log_length(self) -> int:
        """Bytes of log written so far; they are flushed to disk first, because a checkpoint will rely on them."""
        path = self.path / LOG
        if not path.exists():
            return 0
        with friendly_os_errors(path, "write"), open_to_change(path) as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def truncate_log(self, length: int) -> None:
        if self._log_size() > length:
            with friendly_os_errors(self.path / LOG, "truncate"), open_to_change(self.path / LOG) as file:
                file.truncate(length)

    def _log_hash(self, length: int | None = None) -> str:
        """sha256 of the log's first `length` bytes, or of the whole log."""
        return sha256(self._log_bytes()[:length])

    def _log_bytes(self) -> bytes:
        path = self.path / LOG
        return read_bytes(path, fault_of_run(self.path, LOG)) if path.exists() else b""

    def _log_size(self) -> int:
        path = self.path / LOG
        return path.stat().st_size if path.exists() else 0

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a new checkpoint and keep the one before it until `drop_previous`."""
        facts = {
            "epoch": str(checkpoint.epoch),
            "log_bytes": str(checkpoint.log_bytes),
            "fleet": json.dumps(checkpoint.fleet),
            "seconds": repr(checkpoint.seconds),
            "digest": self.record["digest"],
            LOG_HASH: self._log_hash(checkpoint.log_bytes),
        }
        facts[SHA256] = arrays_hash(checkpoint.arrays, facts)
        data = safetensors.numpy.save(checkpoint.arrays, metadata=facts)
        current, previous = self.path / RESUME, self.path / PREVIOUS
        if current.exists():
            with friendly_os_errors(previous, "write"):
                os.replace(current, previous)
        write_atomic(current, data)

    def drop_previous(self) -> None:
        with friendly_os_errors(self.path / PREVIOUS, "remove"):
            (self.path / PREVIOUS).unlink(missing_ok=True)

    def checkpoint_epochs(self) -> dict[int, str]:
        """The epochs from which training can resume, and their files; 0 (the beginning) is always among them."""
        found = {0: ""}
        for name in (PREVIOUS, RESUME):
            if facts := self._facts(name):
                found[int(facts["epoch"])] = name
        return found

    def checkpoint(self, epoch: int) -> Checkpoint | None:
        """The checkpoint of `epoch` (None for the beginning), checked against its hashes; nothing is changed."""
        name = self.checkpoint_epochs()[epoch]
        return self._read_checkpoint(name) if name else None

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints, checked against their hashes."""
        return [found for name in (PREVIOUS, RESUME) if (found := self._read_checkpoint(name))]

    def _read_checkpoint(self, name: str) -> Checkpoint | None:
        arrays: Arrays = {}
        facts = self._facts(name, arrays)
        if facts is None:
            return None
        is_hashed = SHA256 in facts
        if is_hashed and facts[SHA256] != arrays_hash(arrays, facts):
            raise changed_file(self.path, name)
        if is_hashed and facts.get(LOG_HASH) != self._log_hash(int(facts["log_bytes"])):
            raise changed_file(self.path, LOG)
        if not is_hashed and SHA256 in self.record:
            raise damaged_run(self.path, f"{name} lacks its content hash, which the version that began the run writes")
        # A training that diverged is resumed as it was saved; without a hash, such numbers may as well be damage.
        wrong = [] if is_hashed else sorted(key for key, array in arrays.items() if not np.isfinite(array).all())
        if wrong:
            raise damaged_run(self.path, f"{name} has no content hash, and '{wrong[0]}' in it is not finite")
        seconds, log_bytes = float(facts["seconds"]), int(facts["log_bytes"])
        return Checkpoint(int(facts["epoch"]), log_bytes, self._fleet(facts, name), seconds, arrays, is_hashed)

    def rewind(self, epoch: int) -> None:
        """Remove everything later than the checkpoint of `epoch`; all of it for 0, the beginning."""
        name = self.checkpoint_epochs()[epoch]
        facts = self._facts(name) if name else None
        if facts is None:
            self.drop_checkpoints()
            self.truncate_log(0)
            return
        if name == PREVIOUS:
            with friendly_os_errors(self.path / RESUME, "write"):
                os.replace(self.path / PREVIOUS, self.path / RESUME)
        else:
            self.drop_previous()
        # Last, so that after a kill no checkpoint refers to a longer log than the file has.
        self.truncate_log(int(facts["log_bytes"]))

    def fleet_names(self) -> tuple[str, ...]:
        """The runs this one was trained with so far; empty before its first checkpoint."""
        for name in (RESUME, PREVIOUS):
            if facts := self._facts(name):
                return self._fleet(facts, name)
        return ()

    def _fleet(self, facts: Mapping[str, str], name: str) -> tuple[str, ...]:
        fault = fault_of_run(self.path, name)
        names = parse_json(facts["fleet"], fault)
        check_schema(names, {"type": "array", "items": {"type": "string"}}, fault, "fleet")
        return tuple(names)

    def _facts(self, name: str, arrays: Arrays | None = None) -> dict[str, str] | None:
        """A checkpoint's metadata; None if there is no such file, for instance because another process that trains the
        run has just replaced it by a newer one. Where `arrays` is given, the file's arrays are added to it."""
        path, fault = self.path / name, fault_of_run(self.path, name)
        try:
            if arrays is None:
                facts = read_metadata(path, fault)
            else:
                found, facts = read_safetensors(path, fault)
                arrays |= found
        except InputError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        for key, pattern in CHECKPOINT_FACTS.items():
            if not re.fullmatch(pattern, facts.get(key, "")):
                raise fault(f"has {facts.get(key, 'nothing')[:40]!r} as its {key}")
        self._fleet(facts, name)
        if facts.get("digest") != self.record["digest"]:
            raise damaged_run(self.path, f"{name} belongs to another configuration")
        if self._log_size() < int(facts["log_bytes"]):
            what = f"{LOG} has {self._log_size()} bytes where its checkpoint says {facts['log_bytes']}"
            raise damaged_run(self.path, what)
        return facts

    def change_record(self, changes: Mapping[str, Any]) -> None:
        """Write other facts into the record of a run that is not finished."""
        self.record = with_hash(self.record | dict(changes))
        write_atomic(self.path / RECORD, record_json(self.record))

    def finish(
        self,
        model: Arrays,
        rule: Arrays,
        result: Mapping[str, Any],
        timings: Mapping[str, Any],
        others: Mapping[str, Arrays] = _NO_FILES,
    ) -> None:
        """Write the final files, those of `others` by their names, then mark the run as done."""
        hashes = {}
        for name, arrays in {MODEL: model, RULE: rule, **others}.items():
            if arrays:
                data = safetensors.numpy.save(arrays)
                write_atomic(self.path / name, data)
                hashes[name] = sha256(data)
        done = {"status": "done", "result": dict(result), "timings": dict(timings), "files": hashes}
        self.record = with_hash(self.record | done | {LOG_HASH: self._log_hash()})
        write_atomic(self.path / RECORD, record_json(self.record))

    def drop_checkpoints(self) -> None:
        """Remove the files that only an unfinished run needs. A process that locks the run later finds it done."""
        for name in (RESUME, PREVIOUS, LOCK) if self.is_done else (RESUME, PREVIOUS):
            if (self.path / name).exists():
                with friendly_os_errors(self.path / name, "remove"):
                    (self.path / name).unlink(missing_ok=True)

    def params(self) -> Arrays:
        """The final parameters, by leaf name."""
        return self._final(MODEL)

    def model(self) -> Arrays:
        """The same as `params`, by its older name."""
        return self.params()

    def rule_state(self) -> Arrays:
        """The rule's final state; empty if the rule has none, an error if it has one and the file is missing."""
        return self._final(RULE) if self.record["rule_has_state"] else {}

    def other(self, name: str) -> Arrays:
        """Another final file, as `finish` wrote it; empty if it wrote none of that name."""
        return self._final(name) if name in self.record.get("files", ()) else {}

    def _final(self, name: str) -> Arrays:
        if not self.is_done:
            raise InputError(f"{self.path} is not finished. Finish it with the same command and --resume.")
        path = self.path / name
        if not path.exists():
            raise damaged_run(self.path, f"{name} is missing")
        fault = fault_of_run(self.path, name)
        data = read_arrays_file(path, fault)
        if sha256(data) != self.record["files"].get(name):
            raise changed_file(self.path, name)
        return parse_safetensors(data, fault)


def create_run(path: Path, record: Mapping[str, Any]) -> Run:
    """Make a new run's folder with its record inside, in one atomic step; refuse a folder that exists."""
    full = with_hash({"format": RUN_FORMAT, "status": "running", **record})
    with friendly_os_errors(path, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in leftovers(path):  # Of a process that was killed here.
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = temporary_path(path)
        temporary.mkdir()
    try:
        write_atomic(temporary / RECORD, record_json(full))
        if path.exists():
            raise InputError(f"{path} exists already. Add --resume to go on with it, or choose another --out.")
        with friendly_os_errors(path, "create"):
            temporary.rename(path)
            flush(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Run(path, full)


def open_run(path: Path, without: Collection[str] = ()) -> Run:
    """Open a run's folder, or raise an error that says what is wrong with it; files in `without` may be missing."""
    if not path.is_dir():
        raise InputError(f"There is no run at {path}. A run is a folder with a {RECORD} in it.")
    if not (path / RECORD).is_file():
        raise damaged_run(path, f"{RECORD} is missing")
    fault = fault_of_run(path, RECORD)
    record = read_object(path / RECORD, fault)
    if "format" not in record:
        raise damaged_run(path, f"{RECORD} is not a run's record")
    if record["format"] != RUN_FORMAT:
        raise InputError(
            f"{path} was written in format {record['format']}; this version of walkback reads format {RUN_FORMAT}. "
            "Open it with the version that wrote it, or train it again in another folder."
        )
    check_form(record, fault)
    if SHA256 in record and record[SHA256] != document_hash(record):
        raise changed_file(path, RECORD)
    gone = [name for name in record.get("files", ()) if name not in without and not (path / name).is_file()]
    if gone:
        raise damaged_run(path, f"{', '.join(gone)} is missing")
    for name in _CHANGED_IN_PLACE:
        _refuse_link(path, name)
    return Run(path, record)


def _refuse_link(path: Path, name: str) -> None:
    """Refuse what would be written through to somewhere else."""
    with friendly_os_errors(path / name, "read"):
        try:
            mode = (path / name).lstat().st_mode
        except FileNotFoundError:
            return
    if not (stat.S_ISDIR(mode) if name == EPOCHS_FOLDER else stat.S_ISREG(mode)):
        raise fault_of_run(path, name)(f"is {kind_of_file(mode)}")


_CHANGED_IN_PLACE = (LOG, LOCK, EPOCHS_FOLDER)
"""What is written to, not replaced: a link there would change something elsewhere."""


def find_runs(folder: Path) -> list[Path]:
    """The run folders in `folder`, or `folder` itself if it is a run."""
    if (folder / RECORD).is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    return sorted(path.parent for path in folder.glob(f"*/{RECORD}") if not path.parent.name.startswith("."))


def damaged_run(path: Path, what: str) -> InputError:
    return InputError(
        f"The run at {path} is damaged: {what}. Nothing was changed. Move that folder away and train it again."
    )


def fault_of_run(path: Path, name: str) -> Fault:
    """The faults of a file of the run at `path`."""
    return lambda why: damaged_run(path, f"{name} {why}")


def changed_file(path: Path, name: str) -> InputError:
    """The error for a file of the run at `path` that does not have its stored hash."""
    return damaged_run(path, f"{name} is not the file that was written (its sha256 differs)")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record_json(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()
