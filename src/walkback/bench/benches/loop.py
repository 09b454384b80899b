"""Training several ResMLPs on images: walkback's way against a DataLoader loop that trains one after the other.

Ratio: how many times as fast as that loop, per model and epoch
Bar: 3x for the fleets as `walkback sweep` hands them out, on 2 cores
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from walkback.bench.eager_loop import plain_net, plain_step
from walkback.bench.loader import batches, loader_epoch, pictures
from walkback.bench.result import Bar, Options, Result, Row
from walkback.bench.setup import BATCH, MANY_EPOCHS, TINY_ARCHS
from walkback.bench.timing import interleaved, round_seconds
from walkback.bench.worker_pool import Crew
from walkback.core.configuration import grid
from walkback.core.machine import cores
from walkback.data.tensors import NAME as OWN_DATA
from walkback.data.tensors import Tensors
from walkback.runs import train_runs as training
from walkback.training.driver import prepare
from walkback.training.fleet import Fleet
from walkback.training.planning.fleet_plan import Group, suitable_threads
from walkback.training.planning.load_balance import evened, shared_out
from walkback.training.resolved_run import Recipe, resolve

STEPS = 40
METHODS = ("bp", "fa:site=input", "dfa:scale=unit_error,site=input")
SEEDS = 6
BASE, WORKERS = "DataLoader loop, no workers", "DataLoader loop, 2 workers"
TRAIN, SWEEP = "walkback train", "walkback sweep"


def run(options: Options) -> Result:
    device = training.choose_device(options.device)
    prepare(device)
    source = pictures(STEPS, options.quick)
    recipes = _recipes(options, source)
    net = recipes[0].net
    tasks: dict[str, Callable[[], object]] = {}
    for name, workers in ((BASE, 0), (WORKERS, 2)):
        step = plain_step(plain_net(net).to(device))
        tasks[name] = loader_epoch(batches(source.data, workers, device), step, device)
    crews = []
    notes = [f"An epoch is {source.train_size // BATCH} steps of {BATCH}; {len(recipes)} models, test sets left out."]
    groups = _plan(recipes, device, share=1)
    tasks[TRAIN] = _one_after_the_other(groups, source, device)
    notes.append(f"{TRAIN}: one process, fleets of {_sizes([group.recipes for group in groups])}.")
    if device.type == "cpu":
        planned = evened(_plan(recipes, device, share=cores()), cores())
        handed = [[group.recipes for group in share] for share in shared_out(planned, cores())]
        crews.append(Crew(handed, source.data))
        tasks[SWEEP] = crews[0].epoch
        each = "; ".join(_sizes(share) for share in handed)
        notes.append(f"{SWEEP}: {len(handed)} of {cores()} processes of one thread at work, fleets of {each}.")
    repeats = options.rounds(5)
    try:
        seconds = interleaved(tasks, repeats, device, options.hear, round_seconds(device, options.quick))
    finally:
        for crew in crews:
            crew.close()
    rows = []
    for name, values in seconds.items():
        each_model = [value / (1 if name in (BASE, WORKERS) else len(recipes)) for value in values]
        ratios = [base / value for base, value in zip(seconds[BASE], each_model, strict=True)]
        bars = [Bar("ratio", least=3.0)] if name == SWEEP and cores() == 2 and not options.quick else []
        rows.append(Row.of(name, each_model, ratios, bars))
    settings = {"arch": str(recipes[0].config.arch), "methods": sorted({r.method for r in recipes}), "batch": BATCH}
    return Result("loop", "ms per model and epoch", "x as fast", repeats, tuple(rows), settings, tuple(notes))


def _recipes(options: Options, source: Tensors) -> list[Recipe]:
    seeds = range(max(options.models) if options.models else 2 if options.quick else SEEDS)
    arch = TINY_ARCHS["resmlp"] if options.quick else "resmlp"
    methods = options.methods or (METHODS[:1] if options.quick else METHODS)
    configs = grid(methods, arch=arch, data=OWN_DATA, seeds=list(seeds), epochs=MANY_EPOCHS, batch=BATCH)
    return [resolve(config, source) for config in configs]


def _plan(recipes: Sequence[Recipe], device: torch.device, share: int) -> list[Group]:
    memory = training.free_memory(device) // share
    how = training.Options(Path(), device="cuda" if device.type == "cuda" else "cpu", memory=memory)
    return training.make_plan(recipes, how)


def _one_after_the_other(groups: Sequence[Group], source: Tensors, device: torch.device) -> Callable[[], None]:
    drivers = [Fleet(group.recipes, source.data, device) for group in groups]

    def epoch() -> None:
        for group, driver in zip(groups, drivers, strict=True):
            with suitable_threads(group):
                driver.train_epoch(lambda _: None)

    return epoch


def _sizes(fleets: Sequence[Sequence[Recipe]]) -> str:
    return " + ".join(str(len(fleet)) for fleet in fleets)
