"""The price of every credit rule: the time of one training step in steps of backprop, alone and in a fleet."""

from __future__ import annotations

from walkback.bench.result import Options, Result, Row
from walkback.bench.setup import Scale, epoch_of, scale
from walkback.bench.timing import interleaved
from walkback.core.errors import InputError
from walkback.credit import RULES
from walkback.studies.run import choose_device
from walkback.training.driver import Driver
from walkback.training.fleet import Fleet
from walkback.training.single import Single

BASE = "bp"


def run(options: Options) -> Result:
    device = choose_device(options.device)
    size = scale(options.quick, steps=10)
    data = size.data()
    repeats = options.rounds(5)
    usual = 64 if device.type == "cuda" else 8
    methods = [method for method in options.methods or RULES.names() if method != BASE]
    refused = {method: reason for method in methods if (reason := _refusal(method, size))}

    def driver(method: str, models: int | None) -> Driver:
        if models is None:
            return Single(size.recipe(method), data, device)
        return Fleet(size.recipes(method, range(models)), data, device)

    rows = []
    for models in (None, *(options.models or ((2,) if options.quick else (usual,)))):
        where = "alone" if models is None else f"M={models}"
        steps = size.steps * (models or 1)
        base, timed = epoch_of(driver(BASE, models)), [m for m in methods if m not in refused]
        basic: list[float] = []
        priced = []
        for method in timed:
            # In pairs with bp, one at a time: all fleets at once would not fit into memory.
            name = f"{method}, {where}"
            tasks = {BASE: base, name: epoch_of(driver(method, models))}
            seconds = interleaved(tasks, repeats, device, options.hear)
            ratios = [value / other for value, other in zip(seconds[name], seconds[BASE], strict=True)]
            priced.append(Row.of(name, [value / steps for value in seconds[name]], ratios))
            basic += [value / steps for value in seconds[BASE]]
        if not timed:
            basic = [value / steps for value in interleaved({BASE: base}, repeats, device, options.hear)[BASE]]
        rows += [Row.of(f"{BASE}, {where}", basic, [1.0]), *priced]
    rows += [Row(method, reason=reason) for method, reason in refused.items()]
    return Result("rules", "ms per step and model", "bp steps", repeats, tuple(rows), size.facts())


def _refusal(method: str, size: Scale) -> str:
    """Why a rule of the catalog is not defined here; a name that is not in the catalog is a mistake instead."""
    RULES.module(method.partition(":")[0])
    try:
        size.recipe(method)
    except InputError as error:
        return str(error)
    return ""
