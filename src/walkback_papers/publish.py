"""Results made small enough to be kept under version control, with the pages that exactly these numbers give.

Of each run its record, its log and its measurements are copied; weights are not. Measurements are rounded, which is
nearly all of the saving: the last bits of a sample's norm are noise, and noise does not compress.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError
from walkback.core.files import drop_leftovers, friendly_os_errors, write_atomic
from walkback.core.measurements import Measurements
from walkback.report.cells import counted
from walkback.report.study_pages import STUDY_FILE
from walkback.report.study_report import StudyReport
from walkback.runs import store
from walkback.runs.measurement_files import EPOCHS_FOLDER, epoch_file
from walkback.runs.provenance import without_paths
from walkback.runs.train_runs import TrainOptions
from walkback.training.resolved_run import resolve
from walkback_papers import run_studies
from walkback_papers.scale import Scale
from walkback_papers.study import Study

BITS = 16
"""Significant bits that are kept: no number moves by more than 2**-16 of itself. They are the fewest with which no cell
of any table at smoke scale changed; with 15 two of 2782 did (counts of samples near a limit), with 12 five."""


@dataclass(frozen=True)
class Published:
    """What came of it."""

    study_reports: tuple[StudyReport, ...]
    runs: int
    """The runs behind them."""
    written: int
    """Those of which something was new or different."""
    strays: tuple[str, ...]
    """Runs in the folder that no study of the catalog needs; they were left alone."""


def publish(
    studies: Mapping[str, Study], scale: Scale, out: Path, target: Path, bits: int = BITS, processes: int = 1
) -> Published:
    """Copy what these studies need from `out` to `target`, and tell them there.

    Everything is checked before anything is written. What is in `target` already and equal stays untouched.
    """
    _refuse_target(out, target)
    names = [resolved.name for resolved in run_studies.runs_of_studies(studies.values(), scale)]
    _refuse_unfinished(studies, scale, out, len(names))
    changed = {}
    for name in names:
        if different := _different(out / run_studies.RUNS_FOLDER / name, target / run_studies.RUNS_FOLDER / name, bits):
            changed[name] = different
    _refuse_mixture(studies, scale, target, changed)
    for name, files in changed.items():
        _copy(out / run_studies.RUNS_FOLDER / name, target / run_studies.RUNS_FOLDER / name, files, bits)
    study_reports = run_studies.write_reports(studies, scale, target, processes)
    return Published(study_reports, len(names), len(changed), _strays(studies, scale, target))


def _refuse_target(out: Path, target: Path) -> None:
    if out.resolve() == target.resolve():
        raise InputError(f"Results in {out} cannot be published there: they would be rounded. Choose another folder.")
    for path in (target / run_studies.RUNS_FOLDER).glob("*/*.safetensors"):
        raise InputError(f"{path} holds weights, so {target} is no folder of published results. Choose another one.")


def _refuse_unfinished(studies: Mapping[str, Study], scale: Scale, out: Path, count: int) -> None:
    # Nothing is measured here, so the device is any that is there.
    lacking = {
        resolved.name for resolved in run_studies.incomplete_runs(studies, scale, TrainOptions(out=out, device="cpu"))
    }
    for study in studies.values():
        for config, epochs in study.epochs_to_measure(scale):
            path = out / run_studies.RUNS_FOLDER / resolve(config).name
            if not all((path / epoch_file(epoch)).is_file() for epoch in epochs):
                lacking.add(path.name)
    if lacking:
        raise InputError(
            f"{len(lacking)} of {counted(count, 'runs')} in {out / run_studies.RUNS_FOLDER} "
            f"are not trained and measured; the "
            f"first is {min(lacking)}. The same command without --publish makes them. Nothing was written."
        )


def _different(source: Path, target: Path, bits: int) -> list[str]:
    """The files of a run that are to be written; its record is the last."""
    measured = sorted([*source.glob("*.npz"), *source.glob(f"{EPOCHS_FOLDER}/*.npz")])
    names = [path.relative_to(source).as_posix() for path in measured]
    found = [name for name in names if not _is_published(source / name, target / name, bits)]
    return found + [name for name in (store.LOG, store.RECORD) if _text(source / name) != _bytes(target / name)]


def _is_published(source: Path, target: Path, bits: int) -> bool:
    """Whether the same numbers are there. Their bytes may differ where another version of zlib wrote them."""
    wanted = Measurements.load(source).rounded(bits)
    try:
        return target.is_file() and Measurements.load(target).equals(wanted)
    except InputError:  # Cut off by a kill: written again.
        return False


def _text(path: Path) -> bytes:
    """A record without one machine's paths; of a log, numbers to seven digits: that is what float32 gives, and half of
    the file."""
    found = _bytes(path) or b""
    if path.name == store.RECORD:
        record = json.loads(found)
        command = record.get("command", "")
        told = shlex.join(without_paths(shlex.split(command)))
        return found if told == command else store.record_json({**record, "command": told})
    rows = [{name: _short(value) for name, value in json.loads(line).items()} for line in found.splitlines()]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _bytes(path: Path) -> bytes | None:
    with friendly_os_errors(path, "read"):
        return path.read_bytes() if path.is_file() else None


def _refuse_mixture(studies: Mapping[str, Study], scale: Scale, target: Path, changed: Collection[str]) -> None:
    """A page in the folder must not outlive the numbers that it was told from."""
    replaced = {name for name in changed if (target / run_studies.RUNS_FOLDER / name).exists()}
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
    if store.RECORD in files:  # Another training: nothing of the one before may stay beside it.
        for old in [*target.glob("*.npz"), *target.glob(f"{EPOCHS_FOLDER}/*.npz")]:
            if not (source / old.relative_to(target)).is_file():
                with friendly_os_errors(old, "remove"):
                    old.unlink()
    for name in files:
        path = target / name
        with friendly_os_errors(path.parent, "create"):
            path.parent.mkdir(parents=True, exist_ok=True)
        drop_leftovers(path)
        if path.suffix == ".npz":
            Measurements.load(source / name).rounded(bits).save(path, narrow=True)
        else:
            write_atomic(path, _text(source / name))


def _strays(studies: Mapping[str, Study], scale: Scale, target: Path) -> tuple[str, ...]:
    known = {
        resolved.name
        for resolved in run_studies.runs_of_studies([*run_studies.all_studies().values(), *studies.values()], scale)
    }
    return tuple(path.name for path in store.find_runs(target / run_studies.RUNS_FOLDER) if path.name not in known)
