"""The cost of every credit rule: the time of one training step in steps of backprop, alone and in a fleet."""

from __future__ import annotations

from walkback.bench.result import BenchOptions, BenchResult, BenchRow
from walkback.bench.setup import bench_refusal, epoch_of, scale
from walkback.bench.timing import interleaved, round_seconds
from walkback.credit import RULES
from walkback.runs.train_runs import choose_device
from walkback.training.driver import Driver
from walkback.training.fleet import Fleet
from walkback.training.single import Single

_BASE = "bp"


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    size = scale(options.quick, steps=50 if device.type == "cuda" else 10)
    data = size.load()
    repeats, at_least = options.rounds(5), round_seconds(device, options.quick)
    default = 64 if device.type == "cuda" else 8
    methods = [method for method in options.methods or RULES.names() if method != _BASE]
    refused = {method: reason for method in methods if (reason := bench_refusal(method, size))}

    def driver(method: str, models: int | None) -> Driver:
        if models is None:
            return Single(size.resolved(method), data, device)
        return Fleet(size.resolved_runs(method, range(models)), data, device)

    rows = []
    for models in (None, *(options.models or ((2,) if options.quick else (default,)))):
        where = "alone" if models is None else f"M={models}"
        steps = size.steps * (models or 1)
        base, timed = epoch_of(driver(_BASE, models)), [m for m in methods if m not in refused]
        bp_times: list[float] = []
        method_rows = []
        for method in timed:
            # Each method is timed against bp separately: all fleets at once would not fit into memory.
            name = f"{method}, {where}"
            tasks = {_BASE: base, name: epoch_of(driver(method, models))}
            seconds = interleaved(tasks, repeats, device, options.on_task, at_least)
            ratios = [value / other for value, other in zip(seconds[name], seconds[_BASE], strict=True)]
            method_rows.append(BenchRow.of(name, [value / steps for value in seconds[name]], ratios))
            bp_times += [value / steps for value in seconds[_BASE]]
        if not timed:
            seconds = interleaved({_BASE: base}, repeats, device, options.on_task, at_least)
            bp_times = [value / steps for value in seconds[_BASE]]
        rows += [BenchRow.of(f"{_BASE}, {where}", bp_times, [1.0]), *method_rows]
    rows += [BenchRow(method, reason=reason) for method, reason in refused.items()]
    return BenchResult("rules", "ms per step and model", "bp steps", repeats, tuple(rows), size.facts())
