"""Time per step and model: the single driver and fleets of several sizes against a plain eager loop, and against bp.

Ratios: how many times as fast as the plain loop, per model; and time in steps of the same fleet's backprop
Bars: on a GPU, 100x for resmlp at M=128, 5x for vit_mini at M=18; at the largest M fa at most 1, dfa 0.95 bp steps
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import torch

from walkback.bench.eager_loop import plain_loop
from walkback.bench.result import BenchOptions, BenchResult, BenchRow, BenchTarget
from walkback.bench.setup import BENCH_BATCH, BenchScale, bench_refusal, epoch_of, scale
from walkback.bench.timing import interleaved, round_seconds
from walkback.core.settings import Spec
from walkback.runs.train_runs import choose_device
from walkback.training.fleet import Fleet
from walkback.training.out_of_memory import is_out_of_memory
from walkback.training.single import Single

_BASE = "bp"
FLEET_METHODS = (_BASE, "fa:site=input", "dfa:scale=unit_error,site=input")
VECTOR_ARCHS = ("resmlp", "student_net")
"""Networks on vectors are cheap enough for large fleets; one step of the others takes about a second on a CPU, and a
gigabyte for each model."""
_MODELS = {"cpu": (1, 3, 12), "cuda": (1, 3, 12, 48, 128)}
IMAGE_ARCH_MODELS = {"cpu": (1, 3), "cuda": (1, 3, 9, 18)}
_STEPS = {"cpu": 10, "cuda": 50}
IMAGE_ARCH_STEPS = {"cpu": 1, "cuda": 10}
"""Steps of one epoch, which is repeated until a round is long enough."""
SPEEDUP_TARGETS = {("resmlp", 128): 100.0, ("vit_mini", 18): 5.0}
"""The least speed-up over the plain loop, by architecture and number of models."""
BP_STEP_TARGETS = {"fa": 1.0, "dfa": 0.95}
"""The largest cost in steps of backprop, by rule."""


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    repeats = options.rounds(5)
    archs = [_Arch(name, options, device, repeats) for name in options.archs or ("resmlp",)]
    rows = [row for arch in archs for row in arch.rows()]
    facts = {"archs": [arch.size.facts() for arch in archs]}
    return BenchResult("fleet", "ms per step and model", "x as fast", repeats, tuple(rows), facts, second="bp steps")


class _Arch:
    """The timing of one architecture. The constructor checks names and settings, before anything is timed."""

    def __init__(self, arch: str, options: BenchOptions, device: torch.device, repeats: int):
        self.name = Spec.parse(arch).name
        models, steps = (_MODELS, _STEPS) if self.name in VECTOR_ARCHS else (IMAGE_ARCH_MODELS, IMAGE_ARCH_STEPS)
        default = (2,) if options.quick else models[device.type]
        self.size: BenchScale = scale(options.quick, arch, steps[device.type])
        self._arch, self._options, self._device, self._repeats = arch, options, device, repeats
        self._models = sorted(set(options.models or default))
        self._methods = [method for method in options.methods or FLEET_METHODS if method != _BASE]
        self._refused = {method: reason for method in self._methods if (reason := bench_refusal(method, self.size))}
        self._data = self.size.load()
        self._loop = plain_loop(self._data, self.size.resolved(_BASE).net, BENCH_BATCH, device)
        self._plain: list[float] = []

    def rows(self) -> list[BenchRow]:
        """Time everything: the plain loop, one model alone, fleets; and the methods that are not defined."""
        timed = list(self._timed_rows())
        baseline = BenchRow.of(f"{self._arch}: plain loop", self._plain, [1.0])
        refused = [BenchRow(f"{self._arch}: {method}", reason=reason) for method, reason in self._refused.items()]
        return [baseline, *timed, *refused]

    def _timed_rows(self) -> Iterator[BenchRow]:
        alone = Single(self.size.resolved(_BASE), self._data, self._device)
        yield self._row("alone", _BASE, 1, {_BASE: epoch_of(alone)})
        del alone
        for models in self._models:
            try:
                yield from self._fleet_rows(models)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                yield BenchRow(f"{self._arch}: M={models}", reason="two fleets of this size did not fit into memory")
            gc.collect()
            torch.cuda.empty_cache()

    def _fleet_rows(self, models: int) -> Iterator[BenchRow]:
        base = self._fleet(_BASE, models)
        yield self._row(f"M={models}", _BASE, models, {_BASE: base})
        for method in (method for method in self._methods if method not in self._refused):
            # Each method is timed against bp separately: all fleets at once might not fit into memory.
            yield self._row(f"M={models}", method, models, {_BASE: base, method: self._fleet(method, models)})

    def _fleet(self, method: str, models: int) -> Callable[[], object]:
        return epoch_of(Fleet(self.size.resolved_runs(method, range(models)), self._data, self._device))

    def _row(self, where: str, method: str, models: int, tasks: dict[str, Callable[[], object]]) -> BenchRow:
        at_least = round_seconds(self._device, self._options.quick)
        seconds = interleaved(
            {"plain loop": self._loop, **tasks}, self._repeats, self._device, self._options.on_task, at_least
        )
        per_model = [value / self.size.steps / models for value in seconds[method]]
        plain = [value / self.size.steps for value in seconds["plain loop"]]
        self._plain += plain
        speedups = [base / value for base, value in zip(plain, per_model, strict=True)]
        bp_steps = [value / base for value, base in zip(seconds[method], seconds[_BASE], strict=True)]
        what = f"{self._arch}: {method}, {where}"
        return BenchRow.of(
            what, per_model, speedups, self._targets(method, models, where), [] if method == _BASE else bp_steps
        )

    def _targets(self, method: str, models: int, where: str) -> list[BenchTarget]:
        if self._device.type != "cuda" or self._options.quick or where == "alone":
            return []
        rule = Spec.parse(method).name
        speedup, cost = SPEEDUP_TARGETS.get((self._arch, models)), BP_STEP_TARGETS.get(rule)
        targets = [BenchTarget("ratio", least=speedup)] if speedup and method == _BASE else []
        return targets + ([BenchTarget("second", most=cost)] if cost and models == self._models[-1] else [])
