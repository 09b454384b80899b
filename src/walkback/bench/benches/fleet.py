"""Time per step and model: the single driver and fleets of several sizes against a plain eager loop.

Ratio: how many times as fast as the plain loop, per model
"""

from __future__ import annotations

from walkback.bench.plain import plain_loop
from walkback.bench.result import Options, Result, Row
from walkback.bench.setup import BATCH, epoch_of, scale
from walkback.bench.timing import interleaved
from walkback.studies.run import choose_device
from walkback.training.fleet import Fleet
from walkback.training.single import Single

METHODS = ("bp", "fa", "dfa")


def run(options: Options) -> Result:
    device = choose_device(options.device)
    size = scale(options.quick)
    data = size.data()
    repeats = options.rounds(5)
    usual = (1, 3, 12, 48, 128) if device.type == "cuda" else (1, 3, 12)
    fleets = [
        (f"fleet {method}, M={models}", method, models)
        for models in options.models or ((2,) if options.quick else usual)
        for method in options.methods or METHODS
    ]
    # Every name and setting is looked up before the first minute is spent.
    recipes = {name: size.recipes(method, range(models)) for name, method, models in fleets}
    loop = plain_loop(data, size.d, size.depth, BATCH, device)
    plain: list[float] = []
    rows: list[Row] = []

    def against_loop(name: str, models: int, driver: Single | Fleet) -> None:
        seconds = interleaved({"plain": loop, name: epoch_of(driver)}, repeats, device, options.hear)
        each = [value / size.steps / models for value in seconds[name]]
        base = [value / size.steps for value in seconds["plain"]]
        plain.extend(base)
        rows.append(Row.of(name, each, [b / value for b, value in zip(base, each, strict=True)]))

    against_loop("single bp", 1, Single(size.recipe("bp"), data, device))
    for name, _, models in fleets:
        # One fleet at a time: a large one takes much of a GPU.
        against_loop(name, models, Fleet(recipes[name], data, device))
    first = Row.of("plain loop", plain, [1.0])
    return Result("fleet", "ms per step and model", "x as fast", repeats, (first, *rows), size.facts())
