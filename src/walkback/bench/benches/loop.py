"""Training several ResMLPs on images: walkback against a DataLoader loop that trains them one after the other.

Ratio: how many times as fast as that loop, per model and epoch
Bar: 3x for fleets distributed as by `walkback sweep`, on 2 cores
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from walkback.bench.eager_loop import plain_net, plain_step
from walkback.bench.loader import loader_batches, loader_epoch, synthetic_images
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
    source = synthetic_images(_STEPS, options.quick)
    resolved_runs = _resolve_runs(options, source)
    net = resolved_runs[0].net
    tasks: dict[str, Callable[[], object]] = {}
    for name, workers in ((LOOP_BASE, 0), (LOOP_WORKERS, 2)):
        step = plain_step(plain_net(net).to(device))
        tasks[name] = loader_epoch(loader_batches(source.data, workers, device), step, device)
    pools = []
    notes = [
        f"An epoch is {source.train_size // BENCH_BATCH} steps of {BENCH_BATCH}; "
        f"{len(resolved_runs)} models, test sets left out."
    ]
    groups = _plan(resolved_runs, device, processes=1)
    tasks[TRAIN] = _one_after_the_other(groups, source, device)
    notes.append(f"{TRAIN}: one process, fleets of {_sizes([group.resolved_runs for group in groups])}.")
    if device.type == "cpu":
        planned = split_long_fleets(_plan(resolved_runs, device, processes=cores()), cores())
        shares = [[group.resolved_runs for group in share] for share in split_evenly(planned, cores())]
        pools.append(WorkerPool(shares, source.data))
        tasks[SWEEP] = pools[0].epoch
        sizes = "; ".join(_sizes(share) for share in shares)
        notes.append(f"{SWEEP}: {len(shares)} of {cores()} processes of one thread at work, fleets of {sizes}.")
    repeats = options.rounds(5)
    try:
        seconds = interleaved(tasks, repeats, device, options.on_task, round_seconds(device, options.quick))
    finally:
        for pool in pools:
            pool.close()
    rows = []
    for name, values in seconds.items():
        each_model = [value / (1 if name in (LOOP_BASE, LOOP_WORKERS) else len(resolved_runs)) for value in values]
        ratios = [base / value for base, value in zip(seconds[LOOP_BASE], each_model, strict=True)]
        targets = [BenchTarget("ratio", least=3.0)] if name == SWEEP and cores() == 2 and not options.quick else []
        rows.append(BenchRow.of(name, each_model, ratios, targets))
    settings = {
        "arch": str(resolved_runs[0].config.arch),
        "methods": sorted({r.method for r in resolved_runs}),
        "batch": BENCH_BATCH,
    }
    return BenchResult("loop", "ms per model and epoch", "x as fast", repeats, tuple(rows), settings, tuple(notes))


def _resolve_runs(options: BenchOptions, source: Tensors) -> list[ResolvedRun]:
    seeds = range(max(options.models) if options.models else 2 if options.quick else _SEEDS)
    arch = TINY_ARCHS["resmlp"] if options.quick else "resmlp"
    methods = options.methods or (_METHODS[:1] if options.quick else _METHODS)
    configs = grid(methods, arch=arch, data=OWN_DATA, seeds=list(seeds), epochs=MANY_EPOCHS, batch=BENCH_BATCH)
    return [resolve(config, source) for config in configs]


def _plan(resolved_runs: Sequence[ResolvedRun], device: torch.device, processes: int) -> list[FleetGroup]:
    """The fleets of these runs, where `processes` processes share the memory."""
    options = training.TrainOptions(Path(), device="cuda" if device.type == "cuda" else "cpu", sharing=processes)
    return training.plan_runs(resolved_runs, options)


def _one_after_the_other(groups: Sequence[FleetGroup], source: Tensors, device: torch.device) -> Callable[[], None]:
    """A function that trains every fleet for one epoch, in this process."""
    drivers = [Fleet(group.resolved_runs, source.data, device) for group in groups]

    def epoch() -> None:
        for group, driver in zip(groups, drivers, strict=True):
            with suitable_threads(group.flops):
                driver.train_epoch(lambda _: None)

    return epoch


def _sizes(fleets: Sequence[Sequence[ResolvedRun]]) -> str:
    """The sizes of fleets as text, such as "9 + 9"."""
    return " + ".join(str(len(fleet)) for fleet in fleets)
