"""Copy results in a form small enough for version control, and write the pages from the copied numbers.

Each run's record, log and measurements are copied; weights are not. Measurements are rounded, which is nearly all of
the saving: the last bits of a sample's norm are noise, and noise does not compress.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkback.core.content_hash import SHA256, with_hash
from walkback.core.errors import InputError
from walkback.core.files import drop_leftovers, friendly_os_errors, make_subfolder, write_atomic
from walkback.core.measurements import Measurements
from walkback.core.reading.json_text import parse_json, parse_json_lines, require_object
from walkback.core.reading.regular_files import Fault, fault_of, read_bytes
from walkback.report.cells import counted
from walkback.report.study_pages import STUDY_FILE
from walkback.report.study_report import StudyReport
from walkback.runs import store
from walkback.runs.measurement_files import EPOCHS_FOLDER, epoch_file
from walkback.runs.provenance import without_paths
from walkback.runs.train_runs import TrainOptions
from walkback.training.resolved_run import resolve
from walkback_papers import run_studies
from walkback_papers.perform_experiments import missing_of_studies
from walkback_papers.run_studies import RUNS_FOLDER
from walkback_papers.scale import Scale
from walkback_papers.study import Study

BITS = 16
"""Significant bits kept: no number changes by more than 2**-16 of itself. This is the smallest number of bits that
changed no table cell at smoke scale; 15 bits changed two of 2782 cells (counts of samples near a limit), 12 bits
five."""


@dataclass(frozen=True)
class Published:
    """The result of `publish`."""

    study_reports: tuple[StudyReport, ...]
    runs: int
    """Number of runs behind the reports."""
    written: int
    """Number of runs with new or changed files."""
    unused_runs: tuple[str, ...]
    """Runs in the folder that no study of the catalog needs; they are kept."""


def publish(
    studies: Mapping[str, Study], scale: Scale, out: Path, target: Path, bits: int = BITS, processes: int = 1
) -> Published:
    """Copy the runs that these studies need from `out` to `target`, rounded to `bits`, and the results of their
    experiments, and write the reports there.

    Everything is checked before anything is written. Files in `target` that are already equal are not touched.
    """
    _refuse_target(out, target)
    names = [resolved.name for resolved in run_studies.runs_of_studies(studies.values(), scale)]
    _refuse_unfinished(studies, scale, out, len(names))
    changed = {}
    for name in names:
        if files := _changed_files(out / RUNS_FOLDER / name, target / RUNS_FOLDER / name, bits):
            changed[name] = files
    _refuse_stale_pages(studies, scale, target, changed)
    for name, study in studies.items():
        for experiment in study.experiments(scale):
            experiment.copy(out / name, target / name)
    for name, files in changed.items():
        _copy(out / RUNS_FOLDER / name, target / RUNS_FOLDER / name, files, bits)
    study_reports = run_studies.write_reports(studies, scale, target, processes)
    return Published(study_reports, len(names), len(changed), _unused_runs(studies, scale, target))


def _refuse_target(out: Path, target: Path) -> None:
    if out.resolve() == target.resolve():
        raise InputError(f"Results in {out} cannot be published there: they would be rounded. Choose another folder.")
    for path in (target / RUNS_FOLDER).glob("*/*.safetensors"):
        raise InputError(f"{path} holds weights, so {target} is no folder of published results. Choose another one.")


def _refuse_unfinished(studies: Mapping[str, Study], scale: Scale, out: Path, count: int) -> None:
    # Nothing is measured here, so any available device will do.
    options = TrainOptions(out=out, device="cpu")
    incomplete = {resolved.name for resolved in run_studies.incomplete_runs(studies, scale, options)}
    for study in studies.values():
        for config, epochs in study.epochs_to_measure(scale):
            path = out / RUNS_FOLDER / resolve(config).name
            if not all((path / epoch_file(epoch)).is_file() for epoch in epochs):
                incomplete.add(path.name)
    if missing := missing_of_studies(studies, scale, out):
        name, experiment = missing[0]
        raise InputError(
            f"{counted(len(missing), 'experiments')} in {out} have no result; the first is {experiment.name} of {name}."
            " The same command without --publish makes them. Nothing was written."
        )
    if incomplete:
        raise InputError(
            f"{len(incomplete)} of {counted(count, 'runs')} in {out / RUNS_FOLDER} are not trained and measured; the "
            f"first is {min(incomplete)}. The same command without --publish makes them. Nothing was written."
        )


def _changed_files(source: Path, target: Path, bits: int) -> list[str]:
    """The files of a run that must be written; its record is the last."""
    measured = sorted([*source.glob("*.npz"), *source.glob(f"{EPOCHS_FOLDER}/*.npz")])
    names = [path.relative_to(source).as_posix() for path in measured]
    found = [name for name in names if not _is_published(source / name, target / name, bits)]
    return found + [
        name for name in (store.LOG, store.RECORD) if _published_text(source / name) != _bytes(target / name)
    ]


def _is_published(source: Path, target: Path, bits: int) -> bool:
    """Whether the target holds the same numbers. Bytes may differ where another version of zlib wrote them."""
    wanted = Measurements.load(source).rounded(bits)
    try:
        return target.is_file() and Measurements.load(target).equals(wanted)
    except InputError:  # Truncated when the process was killed: written again.
        return False


def _published_text(path: Path) -> bytes:
    """The published form of a record or log: a record without paths of this machine, with the hash of the published
    log; a log's numbers to seven digits, which is the precision of float32 and halves the file."""
    found, fault = _bytes(path) or b"", fault_of(path, "Nothing was published. Train and measure that run again.")
    if path.name == store.RECORD:
        record = require_object(parse_json(found, fault), fault)
        portable = {**record, "command": shlex.join(without_paths(_words(record.get("command", ""), fault)))}
        if store.LOG_HASH in record:
            portable[store.LOG_HASH] = store.sha256(_published_text(path.with_name(store.LOG)))
        if SHA256 in record:
            portable = with_hash(portable)
        return found if portable == {"command": "", **record} else store.record_json(portable)
    rows = [
        {name: _seven_digits(value) for name, value in row.items()}
        for row in parse_json_lines(found.splitlines(), fault)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _words(command: Any, fault: Fault) -> list[str]:
    try:
        return shlex.split(command)
    except (ValueError, AttributeError, TypeError) as error:
        raise fault(f"has {command!r:.60} as its command, which is no command line") from error


def _seven_digits(value: Any) -> Any:
    if isinstance(value, list):
        return [_seven_digits(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _bytes(path: Path) -> bytes | None:
    return read_bytes(path, fault_of(path, "Move it away, and train that run again.")) if path.is_file() else None


def _refuse_stale_pages(studies: Mapping[str, Study], scale: Scale, target: Path, changed: Collection[str]) -> None:
    """Refuse to replace runs under the pages of a study that is not published now: its pages would be out of date."""
    replaced = {name for name in changed if (target / RUNS_FOLDER / name).exists()}
    for name, study in run_studies.all_studies().items():
        if name in studies or not (target / name / STUDY_FILE).is_file():
            continue
        shared = replaced.intersection(resolved.name for resolved in run_studies.runs_of_studies([study], scale))
        if shared:
            raise InputError(
                f"{counted(len(shared), 'runs')} of the study {name} in {target} would be replaced, and its pages "
                f"would not fit any more; the first is {min(shared)}. Publish {name} too, or all. Nothing was written."
            )


def _copy(source: Path, target: Path, files: Collection[str], bits: int) -> None:
    if store.RECORD in files:  # Trained again: files of the earlier training must not remain.
        for old in [*target.glob("*.npz"), *target.glob(f"{EPOCHS_FOLDER}/*.npz")]:
            if not (source / old.relative_to(target)).is_file():
                with friendly_os_errors(old, "remove"):
                    old.unlink()
    for name in files:
        path = target / name
        make_subfolder(path.parent)
        drop_leftovers(path)
        if path.suffix == ".npz":
            Measurements.load(source / name).rounded(bits).save(path, narrow=True)
        else:
            write_atomic(path, _published_text(source / name))


def _unused_runs(studies: Mapping[str, Study], scale: Scale, target: Path) -> tuple[str, ...]:
    folder = target / RUNS_FOLDER
    if not folder.is_dir():  # Studies without runs.
        return ()
    known = {
        resolved.name
        for resolved in run_studies.runs_of_studies([*run_studies.all_studies().values(), *studies.values()], scale)
    }
    return tuple(path.name for path in store.find_runs(folder) if path.name not in known)
