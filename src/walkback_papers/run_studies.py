"""Carrying studies out: train what is missing, measure what is missing, and tell each study from what is stored.

Runs lie in one folder and are shared: a network that several studies look at is trained and measured once. All of it
can be interrupted at any point; the next call goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from walkback.auditing.epoch_monitor import Watcher
from walkback.auditing.measure_run import Laboratory
from walkback.core.errors import InputError, WalkbackError, unknown
from walkback.core.files import drop_leftovers
from walkback.core.measurements import Measurements
from walkback.data.dataset import Dataset
from walkback.report.save import MEASUREMENTS
from walkback.report.study_pages import save_story
from walkback.report.study_report import Story
from walkback.runs import store, train_runs
from walkback.runs.baselines import baselines
from walkback.runs.deadline import NEVER, Deadline
from walkback.runs.measurement_files import ANSWERS, FUNCTIONAL, close_name
from walkback.training.planning.fleet_plan import Group
from walkback.training.resolved_run import Recipe, resolve
from walkback_papers import STUDIES
from walkback_papers.results import AGAIN, Results
from walkback_papers.scale import Scale, scale_of
from walkback_papers.study import Study

RUNS = "runs"
"""Folder of all runs, below the studies' own."""


@dataclass(frozen=True)
class Conducted:
    """What came of it."""

    results: tuple[train_runs.Result, ...]
    stories: tuple[Story, ...]
    """Empty while a run is unfinished."""
    unmeasured: int = 0
    """Measurements for which there was no time."""

    @property
    def unfinished(self) -> int:
        return self.unmeasured + sum(result.status != "done" for result in self.results)


@dataclass(frozen=True)
class Job:
    """A measurement to take of a run, and the file it goes into."""

    recipe: Recipe
    name: str
    take: Callable[[store.Run, Recipe], Measurements]


@dataclass(frozen=True)
class Settled:
    """How far the runs of some studies are."""

    results: tuple[train_runs.Result, ...]
    unmeasured: int = 0
    """Measurements for which there was no time."""

    @property
    def is_done(self) -> bool:
        return not self.unmeasured and all(result.status == "done" for result in self.results)


class Settles(Protocol):
    """A way to have runs trained and measured: here, or in processes of their own."""

    def __call__(
        self, studies: Mapping[str, Study], scale: Scale, options: train_runs.Options, listener: train_runs.Listener
    ) -> Settled: ...


def settle(
    studies: Mapping[str, Study],
    scale: Scale,
    options: train_runs.Options,
    listener: train_runs.Listener,
    names: Collection[str] | None = None,
) -> Settled:
    """Train and measure what is missing below `options.out`, of the runs called `names` or of all."""
    deadline = Deadline(options.max_seconds)
    recipes = [recipe for recipe in recipes_of(studies.values(), scale) if names is None or recipe.name in names]
    folder = options.out / RUNS
    laboratory = _laboratory(options)
    jobs = _jobs(recipes, studies, scale, laboratory)
    left = _unsettled(jobs, folder)
    waiting = {recipe.name for recipe in left}
    settled = [recipe.name for recipe in recipes if recipe.name not in waiting]
    if settled:
        listener.skipped(settled)

    def measure(runs: Sequence[store.Run], data: Dataset) -> None:
        found = _of({run.name for run in runs}, jobs)
        laboratory.keep(found[0].recipe.source, data)
        _measure(found, folder, train_runs.Listener(), NEVER)

    # It is trained once, whoever asks first: so all that any study of the catalog wants to see is looked at. And it is
    # measured as soon as it is trained: then only numbers are needed of it, however the rest ends.
    closely = _closely([*all_studies().values(), *studies.values()], scale)
    watcher = Watcher(closely=closely, finished=measure)
    training = replace(options, out=folder, resume=True, max_seconds=deadline.left)
    train_runs.train([recipe.config for recipe in left], training, listener, observer=watcher)
    results = tuple(train_runs.result_of(recipe, folder) for recipe in recipes)
    done = {result.run for result in results if result.status == "done"}
    finished = [recipe for recipe in recipes if recipe.name in done]
    _refuse_unseen(finished, _closely(studies.values(), scale), folder)
    # Those that were trained before this call, and not measured.
    return Settled(results, _measure(_of(done, jobs), folder, listener, deadline))


def _of(names: Collection[str], jobs: Sequence[Job]) -> list[Job]:
    """The jobs that the runs of these names need."""
    return [job for job in jobs if job.recipe.name in names]


def conduct(
    studies: Mapping[str, Study],
    scale: Scale,
    options: train_runs.Options,
    listener: train_runs.Listener,
    settling: Settles = settle,
) -> Conducted:
    """Carry studies out below `options.out`."""
    done = settling(studies, scale, options, listener)
    stories = tell(studies, scale, options.out) if done.is_done else ()
    return Conducted(done.results, stories, done.unmeasured)


def study(
    names: Sequence[str], scale: str, options: train_runs.Options, listener: train_runs.Listener | None, *, render: bool
) -> tuple[Story, ...]:
    """What `walkback.study` does: carry the named studies out, or with `render` write their pages again."""
    studies, chosen = studies_of(names), scale_of(scale)
    if render:
        return tell(studies, chosen, options.out)
    return conduct(studies, chosen, options, listener or train_runs.Listener()).stories


def unsettled(studies: Mapping[str, Study], scale: Scale, options: train_runs.Options) -> list[Recipe]:
    """The runs of which something is still to be trained or measured."""
    return _left(recipes_of(studies.values(), scale), studies, scale, options)


def _left(
    recipes: Sequence[Recipe], studies: Mapping[str, Study], scale: Scale, options: train_runs.Options
) -> list[Recipe]:
    return _unsettled(_jobs(recipes, studies, scale, _laboratory(options)), options.out / RUNS)


def _laboratory(options: train_runs.Options) -> Laboratory:
    return Laboratory(options.data_root, train_runs.choose_device(options.device))


def _jobs(recipes: Sequence[Recipe], studies: Mapping[str, Study], scale: Scale, laboratory: Laboratory) -> list[Job]:
    """What is to be measured of these runs, in the laboratory."""
    whole = {recipe.name for recipe in _own_recipes(studies.values(), scale)}
    jobs = [
        Job(recipe, MEASUREMENTS, laboratory.measure)
        if recipe.name in whole
        else Job(recipe, ANSWERS, laboratory.measure_answers)
        for recipe in recipes
    ]
    finite = partial(laboratory.measure_functional, samples=scale.functional_samples)
    closer = {recipe.name for recipe in _functional(studies.values(), scale)}
    return jobs + [Job(recipe, FUNCTIONAL, finite) for recipe in recipes if recipe.name in closer]


def _unsettled(jobs: Sequence[Job], folder: Path) -> list[Recipe]:
    """The runs of which something is still to be made. Of the others nothing but numbers is needed: their weights may
    be gone."""
    found = {job.recipe.name: job.recipe for job in jobs if not _is_settled(folder / job.recipe.name, job.name)}
    return list(found.values())


def _is_settled(path: Path, name: str) -> bool:
    if not path.exists():
        return False
    found = store.open_run(path, without=(store.MODEL, store.RULE))
    # Another study may have measured in full what is a mere baseline here.
    names = (ANSWERS, MEASUREMENTS) if name == ANSWERS else (name,)
    return found.is_done and any(_is_measured(found, each) for each in names)


def tell(studies: Mapping[str, Study], scale: Scale, out: Path, processes: int = 1) -> tuple[Story, ...]:
    """Write each study's pages from stored results alone.

    Drawing takes most of it, and several processes share that; their studies must be of the catalog.
    """
    if processes > 1 and len(studies) > 1:
        known = all_studies()
        assert all(known.get(name) is study for name, study in studies.items()), "other processes know the catalog only"
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            return tuple(pool.map(_tell_known, studies, repeat(scale), repeat(out)))
    results = Results(out / RUNS)
    stories = []
    for name, study in studies.items():
        own = {recipe.name for recipe in recipes_of([study], scale)}
        story = study.tell(results.limited_to(own), scale)
        save_story(story, out / name)
        stories.append(story)
    return tuple(stories)


def _tell_known(name: str, scale: Scale, out: Path) -> Story:
    (story,) = tell({name: all_studies()[name]}, scale, out)
    return story


def all_studies() -> dict[str, Study]:
    return {name.replace("_", "-"): STUDIES.get(name) for name in STUDIES.names()}


def studies_of(names: Sequence[str]) -> dict[str, Study]:
    """The named studies, once each, or all of them; names are written with hyphens."""
    known = all_studies()
    if list(names) == ["all"]:
        return known
    for name in names:
        if name not in known:
            raise unknown("study", name, known)
    return {name: known[name] for name in names}


def plan_of(studies: Mapping[str, Study], scale: Scale, options: train_runs.Options) -> tuple[list[Group], int]:
    """The fleets that are still to be trained below `options.out`, and how many runs are trained already."""
    recipes = recipes_of(studies.values(), scale)
    left = _left(recipes, studies, scale, options)
    groups = train_runs.plan_rest(left, replace(options, out=options.out / RUNS, resume=True))
    return groups, len(recipes) - sum(len(group.recipes) for group in groups)


def recipes_of(studies: Iterable[Study], scale: Scale) -> list[Recipe]:
    """Every run the studies need, once, with the baselines of those that are judged."""
    found: dict[str, Recipe] = {}
    for study in studies:
        judged = [resolve(config) for config in study.judged(scale)]
        held_against = [baseline for recipe in judged for baseline in baselines(recipe).values()]
        for recipe in [*_own_recipes([study], scale), *held_against]:
            found.setdefault(recipe.name, recipe)
    return list(found.values())


def _own_recipes(studies: Iterable[Study], scale: Scale) -> list[Recipe]:
    """The runs that the studies themselves look at."""
    found: dict[str, Recipe] = {}
    for study in studies:
        looked_at = [config for config, _ in study.closely(scale)]
        for config in [*study.runs(scale), *study.judged(scale), *looked_at, *study.functional(scale)]:
            recipe = resolve(config)
            found.setdefault(recipe.name, recipe)
    return list(found.values())


def _closely(studies: Iterable[Study], scale: Scale) -> dict[str, set[int]]:
    """By run, the epochs that any of these studies wants to see in full."""
    found: dict[str, set[int]] = {}
    for study in studies:
        for config, epochs in study.closely(scale):
            found.setdefault(resolve(config).name, set()).update(epochs)
    return found


def _functional(studies: Iterable[Study], scale: Scale) -> list[Recipe]:
    found = (resolve(config) for study in studies for config in study.functional(scale))
    return list({recipe.name: recipe for recipe in found}.values())


def _refuse_unseen(recipes: Sequence[Recipe], closely: Mapping[str, Collection[int]], folder: Path) -> None:
    """A run that was trained by other means has no detectors in its log: that must not read as if none had fired."""
    for recipe in recipes:
        found = store.open_run(folder / recipe.name, without=(store.MODEL, store.RULE))
        if any("growth" not in row for row in found.log()):
            raise InputError(f"{found.path} was trained without detectors in its log. {AGAIN}")
        for epoch in sorted(closely.get(recipe.name, ())):
            if not (found.path / close_name(epoch)).is_file():
                raise InputError(f"{found.path} was trained without being measured after epoch {epoch}. {AGAIN}")


def _measure(jobs: Sequence[Job], folder: Path, listener: train_runs.Listener, deadline: Deadline) -> int:
    """Take what is missing, and return how much is left when the time is up."""
    missing = [job for job in jobs if not _is_settled(folder / job.recipe.name, job.name)]
    for done, job in enumerate(missing):
        if deadline.is_past:
            return len(missing) - done
        listener.measuring(job.recipe.name, done, len(missing))
        path = folder / job.recipe.name
        taken = job.take(_whole(path), job.recipe)
        drop_leftovers(path / job.name)
        taken.save(path / job.name)
    return 0


def _is_measured(found: store.Run, name: str) -> bool:
    """Whether the measurements are there, and are of these weights."""
    path = found.path / name
    if not path.is_file():
        return False
    try:
        return bool(Measurements.load(path).facts.get("files") == found.record["files"])
    except InputError:  # Cut off by a kill: measured again.
        return False


def _whole(path: Path) -> store.Run:
    try:
        return store.open_run(path)
    except InputError as error:
        raise WalkbackError(f"{path} is not measured, and cannot be: {error}") from error
