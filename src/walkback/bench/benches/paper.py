"""What all runs of the studies at the papers' scale would take one after the other, in a plain eager loop.

Ratio: hours of the plain loop for all steps of that network; each counts as one of backprop, whatever its rule
"""

from __future__ import annotations

from collections import Counter

from walkback.bench.plain import plain_loop
from walkback.bench.result import Options, Result, Row
from walkback.bench.setup import BATCH, scale
from walkback.bench.timing import interleaved, round_seconds
from walkback.studies import conduct
from walkback.studies.run import choose_device
from walkback.studies.scale import PAPER

STEPS = {"cpu": 2, "cuda": 50}
"""Steps that are timed at once."""


def run(options: Options) -> Result:
    device = choose_device(options.device)
    runs: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for recipe in conduct.recipes_of(conduct.all_studies().values(), PAPER):
        arch = str(recipe.config.arch)
        runs[arch] += 1
        steps[arch] += recipe.config.epochs * recipe.steps_per_epoch
    tasks, lengths = {}, {}
    for arch in runs:
        size = scale(options.quick, arch, STEPS[device.type])
        tasks[arch] = plain_loop(size.load(), size.recipe("bp").net, BATCH, device)
        lengths[arch] = size.steps
    repeats = options.rounds(3)
    found = interleaved(tasks, repeats, device, options.hear, round_seconds(device, options.quick))
    rows, total = [], [0.0] * repeats
    for arch, seconds in found.items():
        each = [value / lengths[arch] for value in seconds]
        hours = [value * steps[arch] / 3600 for value in each]
        total = [one + other for one, other in zip(total, hours, strict=True)]
        rows.append(Row.of(f"{arch}: {runs[arch]} runs, {steps[arch]:,} steps", each, hours))
    mean = [3600 * value / steps.total() for value in total]
    rows.append(Row.of(f"all: {runs.total()} runs, {steps.total():,} steps", mean, total))
    return Result("paper", "ms per step", "hours in a plain loop", repeats, tuple(rows), {"batch": BATCH})
