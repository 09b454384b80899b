"""Damage one file, give one command, and judge what it did."""

from __future__ import annotations

import shutil
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from walkback.campaign.damage import DAMAGES
from walkback.campaign.specimens import Specimen, is_refused, run_command, words_for
from walkback.core.errors import EXIT_INPUT, InputError
from walkback.core.reading.array_files import read_tensors
from walkback.core.reading.json_text import parse_json, parse_json_lines

SECONDS = 60
"""A command that takes longer on a damaged file hangs."""


@dataclass
class Campaign:
    """How many trials there were, and what went wrong in which."""

    tried: int = 0
    refused: int = 0
    """Those that ended with exit code 3."""
    bad: list[str] = field(default_factory=list)

    @property
    def clean(self) -> int:
        return self.tried - len(self.bad)

    def __str__(self) -> str:
        return f"tried {self.tried:,}: clean {self.clean:,} ({self.refused:,} refused), bad {len(self.bad):,}"


def run_campaign(
    specimens: Sequence[Specimen], folder: Path, seed: int, trials: int | None, seconds: float
) -> Campaign:
    """Try until there were so many trials, or the time is up; copies are made in `folder`."""
    draws, found, until = Random(seed), Campaign(), time.monotonic() + seconds
    while (trials is None or found.tried < trials) and time.monotonic() < until:
        specimen = draws.choice(specimens)
        file, kind = draws.choice(specimen.files()), draws.choice(list(DAMAGES))
        command = draws.choice(specimen.commands)
        place = folder / "trial"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(specimen.folder, place)
        problem, code = _trial(specimen, place, file, kind, command, draws)
        found.tried += 1
        found.refused += code == EXIT_INPUT
        if problem:
            found.bad.append(f"trial {found.tried}: {file} {kind}, walkback {command[0]}: {problem}")
    return found


def _trial(
    specimen: Specimen, place: Path, file: Path, kind: str, command: Sequence[str], draws: Random
) -> tuple[str, int | None]:
    """What went wrong, empty where nothing did; and the exit code."""
    path = place / file
    whole = path.read_bytes()
    damaged = DAMAGES[kind](whole, draws)
    path.write_bytes(damaged)
    before = _contents(place)
    try:
        with _alarm():
            code, errors = run_command(words_for(command, place))
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})", None
    if code not in (0, 1, 2, 3):
        return f"exit code {code}", code
    if code == EXIT_INPUT and _contents(place) != before:
        return "files were changed although it was refused", code
    if code == EXIT_INPUT and not errors.startswith("walkback"):
        return f"no sentence: {errors[:80]!r}", code
    checked = specimen.checked.get(command[0], ())
    if file.name in checked and not is_refused(code, command[0]) and not _is_same(file.name, whole, damaged, place):
        return f"accepted with exit code {code}", code
    return "", code


def _is_same(name: str, whole: bytes, damaged: bytes, place: Path) -> bool:
    """Whether two files hold the same values, in other bytes."""
    if whole == damaged:
        return True
    try:
        return bool(_values(name, whole, place) == _values(name, damaged, place))
    except InputError:
        return False


def _values(name: str, data: bytes, place: Path) -> Any:
    if name.endswith(".jsonl"):
        return list(parse_json_lines(data.splitlines(), InputError))
    if name.endswith(".json"):
        return parse_json(data, InputError)
    copy = place / "copy"
    copy.write_bytes(data)
    tensors, metadata = read_tensors(copy, InputError)
    return {key: (each.dtype, each.shape, bytes(each.data)) for key, each in tensors.items()}, metadata


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def _alarm() -> Iterator[None]:
    """Raise TimeoutError in the block when it takes too long."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"it took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
