"""The plan of a folder's unfinished runs: which runs form which fleet, and with which driver.

Training in another fleet gives other bits, so a plan is made once and followed by every later process: resumed
trainings, workers of sweeps, studies. `plan.json` exists while there are unfinished runs; several grids may share it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from walkback.core.content_hash import SHA256, document_hash, with_hash
from walkback.core.errors import InputError
from walkback.core.files import drop_leftovers, flush, friendly_os_errors, write_atomic
from walkback.core.locks import acquire_lock
from walkback.core.reading.json_text import read_json
from walkback.core.reading.schema import Schema, check_schema
from walkback.training.planning.fleet_plan import FleetGroup

PLAN = "plan.json"
PLAN_FORMAT = 1
PLAN_LOCK = ".plan.lock"
"""Locked while the plan is changed; a file of its own, because the plan is replaced."""


@dataclass(frozen=True, order=True)
class PlannedGroup:
    """Runs that are trained together, by name: one fleet, or several concurrent fleets."""

    fleets: tuple[tuple[str, ...], ...]
    driver: Literal["single", "fleet"]

    @staticmethod
    def of(group: FleetGroup) -> PlannedGroup:
        return PlannedGroup(tuple(tuple(run.name for run in fleet) for fleet in group.fleets), group.driver)

    @property
    def names(self) -> list[str]:
        return [name for fleet in self.fleets for name in fleet]

    def without(self, names: Collection[str]) -> PlannedGroup:
        left = (tuple(name for name in fleet if name not in names) for fleet in self.fleets)
        return PlannedGroup(tuple(fleet for fleet in left if fleet), self.driver)


def read_plan(out: Path) -> list[PlannedGroup]:
    """The stored plan, checked; empty where there is none."""
    path = out / PLAN
    if not path.is_file():
        return []
    document = read_json(path, lambda why: _damaged(path, f"it {why}"))
    if not isinstance(document, dict) or document.get("format") != PLAN_FORMAT:
        raise _damaged(path, f"it is not a plan of format {PLAN_FORMAT}")
    if document.get(SHA256) != document_hash(document):
        raise _damaged(path, "it is not the file that was written (its sha256 differs)")
    check_schema(document, _PLAN, lambda why: _damaged(path, f"it {why}"))
    return [
        PlannedGroup(tuple(tuple(fleet) for fleet in entry["fleets"]), entry["driver"]) for entry in document["groups"]
    ]


def store_plan(out: Path, groups: Sequence[FleetGroup]) -> None:
    """Store these groups; their runs leave the groups that they were in before."""
    new = [PlannedGroup.of(group) for group in groups]
    _replace(out, {name for group in new for name in group.names}, new)


def forget(out: Path, names: Collection[str]) -> None:
    """Remove finished runs from the plan."""
    if (out / PLAN).exists():
        _replace(out, names, [])


def _replace(out: Path, names: Collection[str], new: Sequence[PlannedGroup]) -> None:
    path = out / PLAN
    with friendly_os_errors(path, "lock"), _locked(out):
        earlier = read_plan(out)
        others = (group.without(names) for group in earlier)
        # In one order, so that the same plan is the same file, whoever wrote it.
        groups = sorted([*(group for group in others if group.fleets), *new])
        drop_leftovers(path)
        if groups and groups != earlier:
            entries = [{"driver": group.driver, "fleets": group.fleets} for group in groups]
            document = with_hash({"format": PLAN_FORMAT, "groups": entries})
            write_atomic(path, (json.dumps(document, indent=1) + "\n").encode())
        elif not groups:
            path.unlink(missing_ok=True)
            flush(out)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Wait until no other process changes the plan, and keep others from changing it inside the block."""
    lock = acquire_lock(out / PLAN_LOCK)
    try:
        yield
    finally:
        if not (out / PLAN).exists():
            # While it is locked: a process that waits for this file notices that it is gone, and makes a new one.
            (out / PLAN_LOCK).unlink(missing_ok=True)
        lock.release()


_FLEETS: Schema = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
_GROUP: Schema = {
    "type": "object",
    "required": ["driver", "fleets"],
    "properties": {"driver": {"enum": ["single", "fleet"]}, "fleets": _FLEETS},
}
_PLAN: Schema = {"required": ["groups"], "properties": {"groups": {"type": "array", "items": _GROUP}}}


def _damaged(path: Path, what: str) -> InputError:
    return InputError(
        f"The plan {path} is damaged: {what}. Nothing was changed. Move it away to plan the unfinished runs anew; "
        "those with a checkpoint stay in their fleets."
    )
