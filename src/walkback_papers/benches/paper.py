"""Time that all runs of the studies at paper scale would take one after the other, in a plain eager loop.

Ratio: hours of the plain loop for all steps of that network, each counted as one backprop step; and, second, each
counted as its rule's cost in backprop steps when trained alone (`walkback ls methods`)
"""

from __future__ import annotations

from collections import Counter

from walkback.bench.costs import bp_steps
from walkback.bench.eager_loop import plain_loop
from walkback.bench.result import BenchOptions, BenchResult, BenchRow
from walkback.bench.setup import BENCH_BATCH, scale
from walkback.bench.timing import interleaved, round_seconds
from walkback.runs.train_runs import choose_device
from walkback_papers import run_studies
from walkback_papers.scale import PAPER

_STEPS = {"cpu": 2, "cuda": 50}
"""Steps per timing, by device type."""


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    runs: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    weighted_steps: dict[str, float] = {}
    resolved_runs = run_studies.runs_of_studies(run_studies.all_studies().values(), PAPER)
    costs = {
        rule: _cost_alone(rule, device.type) for rule in {resolved.config.method.name for resolved in resolved_runs}
    }
    for resolved in resolved_runs:
        arch, count = str(resolved.config.arch), resolved.config.epochs * resolved.steps_per_epoch
        runs[arch] += 1
        steps[arch] += count
        weighted_steps[arch] = weighted_steps.get(arch, 0.0) + count * costs[resolved.config.method.name]
    tasks, lengths = {}, {}
    for arch in runs:
        size = scale(options.quick, arch, _STEPS[device.type])
        tasks[arch] = plain_loop(size.load(), size.resolved("bp").net, BENCH_BATCH, device)
        lengths[arch] = size.steps
    repeats = options.rounds(3)
    found = interleaved(tasks, repeats, device, options.on_task, round_seconds(device, options.quick))
    each = {arch: [value / lengths[arch] for value in seconds] for arch, seconds in found.items()}
    names = {arch: f"{arch}: {runs[arch]} runs, {steps[arch]:,} steps" for arch in found}
    hours = {arch: [value * steps[arch] / 3600 for value in each[arch]] for arch in found}
    weighted_hours = {arch: [value * weighted_steps[arch] / 3600 for value in each[arch]] for arch in found}
    rows = [BenchRow.of(names[arch], each[arch], hours[arch], second=weighted_hours[arch]) for arch in found]
    total, weighted_total = (
        [sum(values) for values in zip(*by_arch.values(), strict=True)] for by_arch in (hours, weighted_hours)
    )
    mean = [3600 * value / steps.total() for value in total]
    rows.append(BenchRow.of(f"all: {runs.total()} runs, {steps.total():,} steps", mean, total, second=weighted_total))
    facts = {"batch": BENCH_BATCH}
    return BenchResult("paper", "ms per step", "hours", repeats, tuple(rows), facts, second="hours, own steps")


def _cost_alone(rule: str, kind: str) -> float:
    """Cost of one step of a rule in backprop steps, one model alone: on this kind of device, or on another if it was
    not timed on this one; 1 for a rule that was not timed."""
    found = bp_steps(rule)
    near = [costs for device, costs in found.items() if device.startswith(kind)] or [*found.values()]
    return near[0].get("alone", 1.0) if near else 1.0
