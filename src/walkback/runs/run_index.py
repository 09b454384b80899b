"""The runs in one folder, each read once."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from pathlib import Path

from walkback.core.errors import InputError
from walkback.runs import store
from walkback.training.resolved_run import ResolvedRun


class RunIndex:
    """The runs of a folder. A run that cannot be read is left out and named in `notes`; the others stay usable."""

    def __init__(self, folder: Path, without: Collection[str] = ()):
        self._runs: dict[str, store.Run] = {}
        self.notes: list[str] = []
        for path in store.find_runs(folder) if folder.is_dir() else []:
            try:
                self._runs[path.name] = store.open_run(path, without)
            except InputError as error:
                self.notes.append(f"{path.name} was left out: {error}")

    def limited_to(self, names: Collection[str]) -> RunIndex:
        """A view restricted to these runs."""
        found = copy(self)
        found._runs = {name: run for name, run in self._runs.items() if name in names}
        found.notes = [note for note in self.notes if note.partition(" ")[0] in names]
        return found

    def finished(self, resolved: ResolvedRun) -> store.Run | None:
        """The stored run, if it is finished; otherwise None."""
        run = self._runs.get(resolved.name)
        return run if run is not None and run.is_done else None

    def names(self) -> list[str]:
        return sorted(self._runs)

    def training(self) -> dict[str, tuple[int, float]]:
        """By device, the number of finished runs and their seconds of training.

        If several fleets shared the device (`places` of them), each counts its part of the time.
        """
        found: dict[str, tuple[int, float]] = {}
        for run in filter(lambda run: run.is_done, self._runs.values()):
            device, timings = run.record["device"], run.record["timings"]
            runs, seconds = found.get(device, (0, 0.0))
            found[device] = runs + 1, seconds + timings["seconds"] / timings.get("places", 1)
        return found

    def seeds(self) -> list[int]:
        return sorted({run.record["seed"] for run in self._runs.values()})
