"""Small fleets trained concurrently on one GPU, as a plan trains them, against the same fleets one after the other.

Ratio: how many times as fast; on a CPU fleets do not run concurrently, as it has no streams
"""

from __future__ import annotations

from walkback.bench.benches.fleet import FLEET_METHODS
from walkback.bench.result import BenchOptions, BenchResult, BenchRow
from walkback.bench.setup import scale
from walkback.bench.timing import interleaved, round_seconds
from walkback.runs.train_runs import choose_device
from walkback.training.fleet import Fleet
from walkback.training.gpu.concurrent_fleets import ConcurrentFleets

_ARCHS = ("resmlp", "resmlp:terminal_norm=false")
_MODELS = 6
"""Three seeds and their frozen baselines: the runs of one method in a study."""
_STEPS = {"cpu": 5, "cuda": 100}


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    repeats = options.rounds(5)
    models = 2 if options.quick else max(options.models or (_MODELS,))
    sizes = list(dict.fromkeys(scale(options.quick, arch, _STEPS[device.type]) for arch in _ARCHS))
    fleets = [size.resolved_runs(method, range(models)) for size in sizes for method in FLEET_METHODS]
    data = sizes[0].load()
    separate = [Fleet(resolved_runs, data, device) for resolved_runs in fleets]
    concurrent = ConcurrentFleets(fleets, data, device)
    tasks = {
        "one after the other": lambda: [fleet.train_epoch(lambda _: None) for fleet in separate],
        "side by side": lambda: concurrent.train_epoch(lambda _: None),
    }
    seconds = interleaved(tasks, repeats, device, options.on_task, round_seconds(device, options.quick))
    each = {name: [value / sizes[0].steps for value in values] for name, values in seconds.items()}
    first = each["one after the other"]
    rows = [
        BenchRow.of(name, values, [a / b for a, b in zip(first, values, strict=True)]) for name, values in each.items()
    ]
    facts = {
        "models": models,
        "fleets": len(fleets),
        "archs": [size.facts() for size in sizes],
        "methods": [*FLEET_METHODS],
    }
    return BenchResult("convoy", "ms per step of all", "x as fast", repeats, tuple(rows), facts)
