"""The detectors: cheap measurements after every epoch of training.

One pure function measures one model; a training driver applies it to all its models together. Norms, cosines and noise
are computed as in the full measurement, group by group, so that both agree on the same samples. There is no float64
replay and no null here: a detector shows when a full measurement is worthwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import vmap

from walkback.core.errors import InputError
from walkback.core.measurements import GROUP
from walkback.credit.rule import CreditRule, transport
from walkback.credit.trace import trace
from walkback.measure.inputs import MIN_GROUPS
from walkback.measure.subject import probe_noise
from walkback.measure.vectors import cosines, norms, units
from walkback.nets.network import Leaves, Network, part, plain_linear


@dataclass(frozen=True)
class DetectorReading:
    """The detectors' values for one model; a number that is not finite is null in the log."""

    growth: float
    """Largest ratio of mean hidden norms from one state to the next (D1)."""
    grad_top: float
    """|g_L| @128 (D2)."""
    direction: float
    """Mean pairwise cosine of the groups' mean gradients at h_L: drift (c)."""
    hidden: tuple[float, ...]
    """Mean |h_l|."""
    grad: tuple[float, ...]
    """Mean |g_l| @128."""
    cosine: tuple[float, ...]
    """Mean cosine of credit and gradient, by layer."""
    overflow: int | None = None
    """The first layer whose mean norm is not finite after a finite one: unbounded growth, a failure of D1."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class AppliesToModels(Protocol):
    """A training driver: applies a function of one model and samples to all its models."""

    def apply(self, function: Any, x: Tensor, y: Tensor, noise: Leaves) -> Leaves: ...


class Detectors:
    """Measures the models of a driver on fixed evaluation samples."""

    def __init__(self, net: Network, rule: CreditRule, x: Tensor, y: Tensor, at_once: int = 8):
        """`at_once` groups of samples are run together: as many as memory allows."""
        if len(y) < MIN_GROUPS * GROUP:
            raise InputError(
                f"The test set holds {len(y)} samples: fewer than the {MIN_GROUPS} groups of {GROUP} that detectors "
                "need. Take a larger test set, or train without watching."
            )
        self._net, self._rule = net, rule.static()
        full = len(y) // GROUP
        group_ranges = [(start, min(start + at_once, full), GROUP) for start in range(0, full, at_once)]
        ranges = [(first * GROUP, last * GROUP, size) for first, last, size in group_ranges]
        if len(y) % GROUP:
            ranges.append((full * GROUP, len(y), len(y) % GROUP))
        self._parts = [self._part(x[first:last], y[first:last], size) for first, last, size in ranges]

    def _part(self, x: Tensor, y: Tensor, size: int) -> tuple[Tensor, Tensor, Leaves]:
        """Samples split into groups [groups, size, ...], each with its own noise."""
        x, y = (values.unflatten(0, (-1, size)) for values in (x, y))  # type: ignore[no-untyped-call]
        drawn = [probe_noise(self._rule, self._net, group) for group in y]
        noise = {name: torch.stack([each[name] for each in drawn]).to(x.device, x.dtype) for name in drawn[0]}
        return x, y, noise

    def measure(self, driver: AppliesToModels) -> list[DetectorReading]:
        """One reading for each of the driver's models."""
        with torch.no_grad():
            found = [driver.apply(self._measure_groups, *part) for part in self._parts]
            # [model, group, layer, sample] of each part becomes [model, layer, all samples].
            joined = {
                name: torch.cat([each[name].movedim(1, 2).flatten(2) for each in found], dim=-1)
                for name in found[0]
                if name != "top"
            }
            full = [each["top"] for each, (_, y, _) in zip(found, self._parts, strict=True) if _is_full(y)]
            return _readings(joined, torch.cat(full, 1))

    def _measure_groups(
        self, params: Leaves, state: Leaves, knobs: Leaves, x: Tensor, y: Tensor, noise: Leaves
    ) -> Leaves:
        """Measure groups of samples independently of each other; `noise` has one entry for each group."""
        rule = self._rule.bind(part(knobs, "rule"))

        def one(x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
            return self._measure_group(rule, params, state, x, y, noise)

        if self._net.alone:  # It cannot be mapped over groups, either.
            each = [one(x[i], y[i], {name: values[i] for name, values in noise.items()}) for i in range(len(x))]
            return {name: torch.stack([found[name] for found in each]) for name in each[0]}
        measured: Leaves = vmap(one)(x, y, noise)
        return measured

    def _measure_group(
        self, rule: CreditRule, params: Leaves, state: Leaves, x: Tensor, y: Tensor, noise: Leaves
    ) -> Leaves:
        net = self._net
        traced = trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)
        linears = rule.linears(net, state, noise)
        # Rules with their own backward pass through a block need a trace of their own; the others share this one.
        rule_trace = traced
        if not all(each is plain_linear for each in linears):
            rule_trace = trace(net, params, x, y, linears, with_input=rule.through_blocks)
        h, g, a = (
            [self._pooled(values) for values in layers]
            for layers in (traced.states, transport(traced), rule.credit(net, params, state, rule_trace, noise)[0])
        )
        found = {
            "hidden": torch.stack([norms(values) for values in h]),
            "grad": torch.stack([norms(values) for values in g]),
            "cosine": torch.stack([cosines(*pair) for pair in zip(a, g, strict=True)]),
            "top": g[-1].mean(0),
        }
        if self._reads_cls:
            found["whole"] = torch.stack([norms(values.double().flatten(1)) for values in traced.states[:2]])
        return found

    @property
    def _reads_cls(self) -> bool:
        return self._net.head_reads_cls

    def _pooled(self, values: Tensor) -> Tensor:
        """[n, features] in float64; of token states, only the cls token if the head reads nothing else."""
        return (values[:, 0] if self._reads_cls else values).double().flatten(1)


def _is_full(y: Tensor) -> bool:
    return y.shape[1] == GROUP


def _readings(found: Mapping[str, Tensor], tops: Tensor) -> list[DetectorReading]:
    """`found` has axes model, layer, sample; `tops` are the groups' mean gradients at h_L, by model and group."""
    hidden, grad = found["hidden"].mean(-1), found["grad"].mean(-1) / GROUP
    ratios = hidden[:, 1:] / hidden[:, :-1]
    if "whole" in found:
        # Before the first block the cls token is the same for every sample, so its norm is no baseline for growth.
        first, second = found["whole"].mean(-1).unbind(1)
        ratios[:, 0] = second / first
    means = units(tops)
    upper = torch.triu_indices(tops.shape[1], tops.shape[1], offset=1, device=tops.device)
    directions = (means @ means.mT)[:, upper[0], upper[1]].mean(-1)
    columns = (ratios.amax(-1), directions, hidden, grad, found["cosine"].nanmean(-1))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        DetectorReading(
            growth=growth,
            overflow=_overflow(hidden),
            grad_top=grad[-1],
            direction=direction,
            hidden=tuple(hidden),
            grad=tuple(grad),
            cosine=tuple(cosine),
        )
        for growth, direction, hidden, grad, cosine in rows
    ]


def _overflow(hidden: Sequence[float]) -> int | None:
    steps = enumerate(pairwise(hidden), start=1)
    return next((layer for layer, (below, here) in steps if isfinite(below) and not isfinite(here)), None)
