"""Scaling of a fleet's step with models M, width d and depth L, and of its epoch with the data; with fitted lines.

Ratio: to the smallest size of the same sweep
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy
import torch

from walkback.bench.result import BenchOptions, BenchResult, BenchRow
from walkback.bench.setup import BENCH_BATCH, BenchScale, epoch_of
from walkback.bench.timing import interleaved, round_seconds
from walkback.runs.train_runs import choose_device
from walkback.training.fleet import Fleet
from walkback.training.planning.flop_count import count_step


@dataclass(frozen=True)
class ScalingPoint:
    """A fleet of ResMLPs on `steps` batches of vectors."""

    models: int
    d: int
    depth: int
    dim: int
    steps: int

    @property
    def scale(self) -> BenchScale:
        return BenchScale(f"resmlp:d={self.d},depth={self.depth}", f"prototypes:dim={self.dim}", self.steps, test=128)


@dataclass(frozen=True)
class _Sweep:
    """One field of `base` takes several values; the time of a step or of an epoch is measured at each."""

    name: str
    field: str
    values: tuple[int, ...]
    base: ScalingPoint

    def points(self) -> list[ScalingPoint]:
        return [replace(self.base, **{self.field: value}) for value in self.values]


@dataclass(frozen=True)
class Line:
    """milliseconds = intercept + slope * x, by least squares."""

    sweep: str
    x: str
    slope: float
    intercept: float
    r2: float
    largest_residual: float
    """The largest distance of a point from the line, relative to the point's value."""

    @staticmethod
    def through(sweep: str, x: str, xs: Sequence[float], ms: Sequence[float]) -> Line:
        """The least-squares line through the points (xs, ms)."""
        at, measured = numpy.asarray(xs, float), numpy.asarray(ms, float)
        slope, intercept = numpy.polynomial.Polynomial.fit(at, measured, 1).convert().coef[::-1]
        residuals = measured - (intercept + slope * at)
        r2 = 1 - float(residuals @ residuals) / float(((measured - measured.mean()) ** 2).sum())
        return Line(sweep, x, float(slope), float(intercept), r2, float((abs(residuals) / measured).max()))

    def __str__(self) -> str:
        return (
            f"{self.sweep}: {self.intercept:.4g} ms + {self.slope:.4g} ms x {self.x}, "
            f"R^2 {self.r2:.4f}, largest residual {100 * self.largest_residual:.0f}%"
        )


_NAMES = (
    ("step against models", "models"),
    ("step against width", "d"),
    ("step against depth", "depth"),
    ("epoch against data", "steps"),
)
SCALING_SIZES: dict[str, tuple[ScalingPoint, tuple[tuple[int, ...], ...]]] = {
    "quick": (ScalingPoint(2, 8, 1, 16, 1), ((1, 2, 3), (8, 16), (1, 2), (1, 2))),
    "cpu": (ScalingPoint(4, 64, 2, 256, 10), ((1, 2, 4, 8, 16), (32, 64, 128, 256), (1, 2, 4, 8), (10, 20, 40, 80))),
    "cuda": (
        ScalingPoint(32, 256, 4, 3072, 50),
        ((1, 2, 8, 32, 128), (64, 256, 512, 1024), (1, 4, 8, 16), (25, 50, 100, 200)),
    ),
}
"""The fleet that all sweeps vary, and the values of each sweep."""


def sweeps(kind: str, quick: bool) -> list[_Sweep]:
    """The sweeps that are timed on a kind of device."""
    base, values = SCALING_SIZES["quick" if quick else kind]
    return [_Sweep(name, field, sizes, base) for (name, field), sizes in zip(_NAMES, values, strict=True)]


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    repeats = options.rounds(5)
    rows, lines = [], []
    chosen = sweeps(device.type, options.quick)
    if options.models:
        chosen[0] = replace(chosen[0], values=tuple(sorted(set(options.models))))
    shared = _epoch(chosen[0].base, device)
    for sweep in chosen:
        tasks = {}
        for point, value in zip(sweep.points(), sweep.values, strict=True):
            task = shared if point == sweep.base else _epoch(point, device)
            tasks[f"{sweep.name}: {sweep.field}={value}"] = task
        seconds = interleaved(tasks, repeats, device, options.on_task, round_seconds(device, options.quick))
        per_epoch = sweep.field == "steps"
        each = [
            [value if per_epoch else value / point.steps for value in values]
            for point, values in zip(sweep.points(), seconds.values(), strict=True)
        ]
        sweep_rows = [
            BenchRow.of(name, values, [value / least for value, least in zip(values, each[0], strict=True)])
            for name, values in zip(tasks, each, strict=True)
        ]
        rows += sweep_rows
        lines += _lines(sweep, [row.ms.median for row in sweep_rows if row.ms])
    settings = {"batch": BENCH_BATCH, "base": asdict(chosen[0].base), "lines": [asdict(line) for line in lines]}
    notes = tuple(map(str, lines))
    return BenchResult("scaling", "ms", "x the smallest", repeats, tuple(rows), settings, notes)


def _epoch(point: ScalingPoint, device: torch.device) -> Callable[[], object]:
    resolved_runs = point.scale.resolved_runs("bp", range(point.models))
    return epoch_of(Fleet(resolved_runs, point.scale.load(), device))


def _lines(sweep: _Sweep, ms: Sequence[float]) -> list[Line]:
    if len(ms) < 3:
        return []  # A line through two points always fits.
    if sweep.field == "steps":
        return [Line.through(sweep.name, "sample", [BENCH_BATCH * value for value in sweep.values], ms)]
    found = [Line.through(sweep.name, sweep.field, sweep.values, ms)]
    if sweep.field == "d":
        # Matrix products grow with the square of the width, so time should be linear in the number of operations.
        counted = [count_step(point.scale.resolved("bp")).flops * point.models / 1e9 for point in sweep.points()]
        found.append(Line.through(sweep.name, "GFLOP", counted, ms))
    return found
