"""Training several ResMLPs on images: walkback's way against a DataLoader loop that trains one after the other.

Ratio: how many times as fast as that loop, per model and epoch
Bar: 3x for the fleets as `walkback sweep` hands them out, on 2 cores
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from walkback.bench.eager_loop import plain_net, plain_step
from walkback.bench.loader import loader_batches, loader_epoch, pictures
from walkback.bench.result import BenchOptions, BenchResult, BenchRow, BenchTarget
from walkback.bench.setup import BENCH_BATCH, MANY_EPOCHS, TINY_ARCHS
from walkback.bench.timing import interleaved, round_seconds
from walkback.bench.worker_pool import WorkerPool
from walkback.core.configuration import grid
from walkback.core.machine import cores
from walkback.data.tensors import TENSORS_NAME as OWN_DATA
from walkback.data.tensors import Tensors
from walkback.runs import train_runs as training
from walkback.training.driver import set_exact_arithmetic
from walkback.training.fleet import Fleet
from walkback.training.planning.fleet_plan import FleetGroup, suitable_threads
from walkback.training.planning.load_balance import split_evenly, split_long_fleets
from walkback.training.resolved_run import ResolvedRun, resolve

_STEPS = 40
_METHODS = ("bp", "fa:site=input", "dfa:scale=unit_error,site=input")
_SEEDS = 6
LOOP_BASE, LOOP_WORKERS = "DataLoader loop, no workers", "DataLoader loop, 2 workers"
TRAIN, SWEEP = "walkback train", "walkback sweep"


def run(options: BenchOptions) -> BenchResult:
    device = training.choose_device(options.device)
    set_exact_arithmetic(device)
    source = pictures(_STEPS, options.quick)
    resolved_runs = _recipes(options, source)
    net = resolved_runs[0].net
    tasks: dict[str, Callable[[], object]] = {}
    for name, workers in ((LOOP_BASE, 0), (LOOP_WORKERS, 2)):
        step = plain_step(plain_net(net).to(device))
        tasks[name] = loader_epoch(loader_batches(source.data, workers, device), step, device)
    crews = []
    notes = [
        f"An epoch is {source.train_size // BENCH_BATCH} steps of {BENCH_BATCH}; "
        f"{len(resolved_runs)} models, test sets left out."
    ]
    groups = _plan(resolved_runs, device, share=1)
    tasks[TRAIN] = _one_after_the_other(groups, source, device)
    notes.append(f"{TRAIN}: one process, fleets of {_sizes([group.resolved_runs for group in groups])}.")
    if device.type == "cpu":
        planned = split_long_fleets(_plan(resolved_runs, device, share=cores()), cores())
        handed = [[group.resolved_runs for group in share] for share in split_evenly(planned, cores())]
        crews.append(WorkerPool(handed, source.data))
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
        each_model = [value / (1 if name in (LOOP_BASE, LOOP_WORKERS) else len(resolved_runs)) for value in values]
        ratios = [base / value for base, value in zip(seconds[LOOP_BASE], each_model, strict=True)]
        bars = [BenchTarget("ratio", least=3.0)] if name == SWEEP and cores() == 2 and not options.quick else []
        rows.append(BenchRow.of(name, each_model, ratios, bars))
    settings = {
        "arch": str(resolved_runs[0].config.arch),
        "methods": sorted({r.method for r in resolved_runs}),
        "batch": BENCH_BATCH,
    }
    return BenchResult("loop", "ms per model and epoch", "x as fast", repeats, tuple(rows), settings, tuple(notes))


def _recipes(options: BenchOptions, source: Tensors) -> list[ResolvedRun]:
    seeds = range(max(options.models) if options.models else 2 if options.quick else _SEEDS)
    arch = TINY_ARCHS["resmlp"] if options.quick else "resmlp"
    methods = options.methods or (_METHODS[:1] if options.quick else _METHODS)
    configs = grid(methods, arch=arch, data=OWN_DATA, seeds=list(seeds), epochs=MANY_EPOCHS, batch=BENCH_BATCH)
    return [resolve(config, source) for config in configs]


def _plan(resolved_runs: Sequence[ResolvedRun], device: torch.device, share: int) -> list[FleetGroup]:
    memory = training.free_memory(device) // share
    how = training.TrainOptions(Path(), device="cuda" if device.type == "cuda" else "cpu", memory=memory)
    return training.plan_runs(resolved_runs, how)


def _one_after_the_other(groups: Sequence[FleetGroup], source: Tensors, device: torch.device) -> Callable[[], None]:
    drivers = [Fleet(group.resolved_runs, source.data, device) for group in groups]

    def epoch() -> None:
        for group, driver in zip(groups, drivers, strict=True):
            with suitable_threads(group):
                driver.train_epoch(lambda _: None)

    return epoch


def _sizes(fleets: Sequence[Sequence[ResolvedRun]]) -> str:
    return " + ".join(str(len(fleet)) for fleet in fleets)
