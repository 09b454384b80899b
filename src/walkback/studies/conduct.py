"""Carrying studies out: train what is missing, measure what is missing, and tell each study from what is stored.

Runs lie in one folder and are shared: a network that several studies look at is trained and measured once. All of it
can be interrupted at any point; the next call goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from walkback.core.errors import InputError, WalkbackError, unknown
from walkback.core.measurements import Measurements
from walkback.render.save import MEASUREMENTS
from walkback.render.story import Story
from walkback.render.story_pages import save_story
from walkback.studies import STUDIES, run, store
from walkback.studies.laboratory import Laboratory
from walkback.studies.observer import Watcher
from walkback.studies.results import FUNCTIONAL, Results
from walkback.studies.scale import Scale
from walkback.studies.shelf import baselines
from walkback.studies.study import Study
from walkback.training.plan import Group
from walkback.training.recipe import Recipe, resolve

RUNS = "runs"
"""Folder of all runs, below the studies' own."""


@dataclass(frozen=True)
class Conducted:
    """What came of it."""

    results: tuple[run.Result, ...]
    stories: tuple[Story, ...]
    """Empty while a run is unfinished."""

    @property
    def unfinished(self) -> int:
        return sum(result.status != "done" for result in self.results)


def conduct(studies: Mapping[str, Study], scale: Scale, options: run.Options, listener: run.Listener) -> Conducted:
    """Carry studies out below `options.out`."""
    recipes = _recipes(studies.values(), scale)
    folder = options.out / RUNS
    watcher = Watcher(closely=_closely(scale))
    training = run.Options(**{**vars(options), "out": folder, "resume": True})
    results = run.train([recipe.config for recipe in recipes], training, listener, observer=watcher)
    if any(result.status != "done" for result in results):
        return Conducted(tuple(results), ())
    laboratory = Laboratory(options.data_root, run.choose_device(options.device))
    _measure(recipes, folder, laboratory, listener)
    functional = {resolve(c).name: resolve(c) for study in studies.values() for c in study.functional(scale)}
    _measure_functional(list(functional.values()), folder, laboratory, scale, listener)
    return Conducted(tuple(results), tell(studies, scale, options.out))


def tell(studies: Mapping[str, Study], scale: Scale, out: Path) -> tuple[Story, ...]:
    """Write each study's pages from stored results alone."""
    results = Results(out / RUNS)
    stories = []
    for name, study in studies.items():
        story = study.tell(results, scale)
        save_story(story, out / name)
        stories.append(story)
    return tuple(stories)


def all_studies() -> dict[str, Study]:
    return {name.replace("_", "-"): STUDIES.get(name) for name in STUDIES.names()}


def studies_of(names: Sequence[str]) -> dict[str, Study]:
    """The named studies, once each; names are written with hyphens."""
    known = all_studies()
    for name in names:
        if name not in known:
            raise unknown("study", name, known)
    return {name: known[name] for name in names}


def plan_of(studies: Mapping[str, Study], scale: Scale, options: run.Options) -> list[Group]:
    """The fleets that all runs of these studies make, finished ones included."""
    recipes = _recipes(studies.values(), scale)
    return run.make_plan(recipes, [()] * len(recipes), options)


def _recipes(studies: Iterable[Study], scale: Scale) -> list[Recipe]:
    """Every run the studies need, once, with the baselines of those that are judged."""
    found: dict[str, Recipe] = {}
    for study in studies:
        for config in [*study.runs(scale), *study.judged(scale)]:
            recipe = resolve(config)
            found.setdefault(recipe.name, recipe)
        for config in study.judged(scale):
            for recipe in baselines(resolve(config)).values():
                found.setdefault(recipe.name, recipe)
    return list(found.values())


def _closely(scale: Scale) -> dict[str, set[int]]:
    """The epochs that any study of the catalog wants of a run: it is trained once, whoever asks first."""
    found: dict[str, set[int]] = {}
    for study in all_studies().values():
        for config, epochs in study.closely(scale):
            found.setdefault(resolve(config).name, set()).update(epochs)
    return found


def _measure(recipes: Sequence[Recipe], folder: Path, laboratory: Laboratory, listener: run.Listener) -> None:
    for done, recipe in enumerate(recipes):
        listener.measuring(recipe.name, done, len(recipes))
        found = store.open_run(folder / recipe.name, without=(store.MODEL, store.RULE))
        if not _is_measured(found, MEASUREMENTS):
            laboratory.measure(_whole(found), recipe).save(found.path / MEASUREMENTS)


def _measure_functional(
    recipes: Sequence[Recipe], folder: Path, laboratory: Laboratory, scale: Scale, listener: run.Listener
) -> None:
    for done, recipe in enumerate(recipes):
        listener.measuring(recipe.name, done, len(recipes))
        found = store.open_run(folder / recipe.name, without=(store.MODEL, store.RULE))
        if not _is_measured(found, FUNCTIONAL):
            taken = laboratory.measure_functional(_whole(found), recipe, samples=scale.functional_samples)
            taken.save(found.path / FUNCTIONAL)


def _is_measured(found: store.Run, name: str) -> bool:
    """Whether the measurements are there, and are of these weights."""
    path = found.path / name
    if not path.is_file():
        return False
    try:
        return bool(Measurements.load(path).facts.get("files") == found.record["files"])
    except InputError:  # Cut off by a kill: measured again.
        return False


def _whole(found: store.Run) -> store.Run:
    try:
        return store.open_run(found.path)
    except InputError as error:
        raise WalkbackError(f"{found.path} is not measured, and cannot be: {error}") from error
