"""Experiments of a study that are no runs: each gives one JSON document, stored in the study's folder.

A result is stored with the settings that it depends on and with a content hash: a changed file, or one of other
settings, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkback.core.content_hash import SHA256, document_hash, with_hash
from walkback.core.errors import InputError
from walkback.core.files import drop_leftovers, make_subfolder, write_atomic
from walkback.core.jsonable import jsonable
from walkback.core.reading.json_text import read_object
from walkback.core.reading.regular_files import fault_of, read_bytes
from walkback.core.reading.schema import Schema, check_schema
from walkback.runs.train_runs import TrainOptions

EXPERIMENTS = "experiments"
"""Name of the folder of results, inside the study's folder."""
_AWAY = "Move that file away and run the study again: it makes the result anew."


@dataclass(frozen=True)
class Experiment:
    """One experiment of a study."""

    name: str
    settings: Mapping[str, Any]
    """Everything that its result depends on, as plain values."""
    perform: Callable[[TrainOptions], Mapping[str, Any]]
    """Gives the result, as plain values. `out` of the options is a folder of its own, where training is resumed."""

    def path(self, folder: Path) -> Path:
        """Where its result is stored; `folder` is that of its study."""
        return folder / EXPERIMENTS / f"{self.name}.json"

    def load(self, folder: Path) -> Mapping[str, Any]:
        """Its stored result."""
        path = self.path(folder)
        if not path.is_file():
            raise InputError(f"{path} is missing. Run the study first: what is stored already is kept.")
        fault = fault_of(path, _AWAY)
        stored = read_object(path, lambda why: fault(f"is damaged: it {why}"))
        if stored.get(SHA256) != document_hash(stored):
            raise InputError(f"{path} is damaged: it is not the file that was written (its sha256 differs). {_AWAY}")
        check_schema(stored, _RESULT, fault)
        if stored["settings"] != jsonable(self.settings):
            raise InputError(f"{path} was made with other settings than this study has now. {_AWAY}")
        result: Mapping[str, Any] = stored["result"]
        return result

    def store(self, folder: Path, result: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Write its result; `made` says by which versions and on which device."""
        path = self.path(folder)
        document = {"format": 1, "name": self.name, "settings": self.settings, "made": made, "result": result}
        _write(path, json.dumps(with_hash(jsonable(document)), allow_nan=False).encode() + b"\n")

    def copy(self, source: Path, target: Path) -> bool:
        """Copy its result to another folder of the study; returns whether the file there has changed."""
        self.load(source)
        fault = fault_of(self.path(source), _AWAY)
        data, path = read_bytes(self.path(source), fault), self.path(target)
        if path.is_file() and read_bytes(path, fault_of(path, _AWAY)) == data:
            return False
        _write(path, data)
        return True


_RESULT: Schema = {"required": ["settings", "result"], "properties": {"result": {"type": "object"}}}


def _write(path: Path, data: bytes) -> None:
    make_subfolder(path.parent)
    drop_leftovers(path)
    write_atomic(path, data)


def missing_experiments(experiments: Iterable[Experiment], folder: Path) -> list[Experiment]:
    """The experiments without a stored result; a stored result that cannot be used is refused."""
    found = []
    for experiment in experiments:
        if experiment.path(folder).exists():
            experiment.load(folder)
        else:
            found.append(experiment)
    return found
