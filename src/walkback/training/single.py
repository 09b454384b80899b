"""The single driver: one model trained by a plain loop. The reference that the fleet is tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from walkback.credit.rule import LEARNED
from walkback.data.dataset import Dataset
from walkback.data.feed import Feed, TestSet
from walkback.nets.network import Leaves
from walkback.training.driver import (
    Calibration,
    Driver,
    ModelFunction,
    Snapshot,
    Tick,
    copy_into,
    matmul_precision,
    set_exact_arithmetic,
    to_cpu,
)
from walkback.training.optimisers import LeafOptimiser
from walkback.training.resolved_run import ResolvedRun
from walkback.training.step import StepSpec, step


class Single(Driver):
    """Trains one model, one eager step after the other."""

    def __init__(self, resolved: ResolvedRun, data: Dataset, device: torch.device):
        set_exact_arithmetic(device)
        self.resolved_runs = (resolved,)
        self.epoch = 0
        self._resolved = resolved
        self._device = device
        self._spec = StepSpec.of(resolved)
        self._feed = Feed(data, resolved.config.batch, resolved.augment, resolved.dtype, device)
        self._test = TestSet(data, resolved.dtype, device)
        self.steps_per_epoch = self._feed.steps
        self._params = {name: leaf.to(device) for name, leaf in resolved.params().items()}
        self._state = {name: leaf.to(device) for name, leaf in resolved.state().items()}
        self._knobs = {k: torch.tensor(v, dtype=resolved.dtype, device=device) for k, v in resolved.knobs().items()}
        trained = {name: leaf for name, leaf in self._params.items() if not resolved.is_frozen(name)}
        learned = {name: leaf for name, leaf in self._state.items() if name.startswith(LEARNED)}
        self._optimiser = LeafOptimiser(trained, resolved.config.weight_decay, optimiser=resolved.optimiser)
        self._own_optimiser = LeafOptimiser(learned, weight_decay=0.0) if learned else None
        self._total = resolved.config.epochs * self._feed.steps
        self._calibrate = Calibration(resolved, data, device) if resolved.net.is_calibrated else None

    def warm_up(self) -> None:
        """No-op: steps run eagerly."""

    def train_epoch(self, tick: Tick) -> list[dict[str, float]]:
        order = {name: values.to(self._device) for name, values in self._feed.order(self._seed, self.epoch).items()}
        totals: dict[str, torch.Tensor] = {}
        for index in range(self.steps_per_epoch):
            x, y = self._feed.take({name: values[index] for name, values in order.items()})
            noise = {name: leaf.to(self._device) for name, leaf in self._resolved.noise(self.epoch, index).items()}
            with matmul_precision(self._resolved):
                output = step(self._spec, self._params, self._state, self._knobs, x, y, noise)
                for name, value in output.buffers.items():
                    self._params[name].copy_(value)
                self._update(output.gradients, output.own_gradients, self.epoch * self.steps_per_epoch + index)
            for name, value in output.logs.items():
                totals[name] = totals.get(name, torch.zeros_like(value)) + value
            tick(1)
        self.epoch += 1
        return [{name: (total / self.steps_per_epoch).item() for name, total in totals.items()}]

    def _update(self, gradients: dict[str, torch.Tensor], own: dict[str, torch.Tensor], done: int) -> None:
        rule = self._resolved.rule
        factor = self._resolved.schedule.factor(done, self._total, self.steps_per_epoch)
        rate = self._resolved.config.lr * factor
        before = {n: leaf.clone() for n, leaf in self._params.items()} if rule.updates_state() else self._params
        self._optimiser.update(gradients, rate)
        if self._own_optimiser:
            self._own_optimiser.update(own, rule.own_lr * factor)
        if rule.updates_state():
            decay = torch.tensor(
                rate * self._resolved.config.weight_decay, dtype=self._resolved.dtype, device=self._device
            )
            copy_into(self._state, rule.after_update(self._state, before, self._params, decay))

    def test_accuracy(self) -> list[float]:
        self._set_buffers()
        correct = torch.zeros((), dtype=torch.int64, device=self._device)
        with torch.no_grad():
            for x, y in self._test.batches():
                correct += (self._resolved.net.forward(self._params, x).argmax(-1) == y).sum()
        return [correct.item() / self._test.answers]

    def _set_buffers(self) -> None:
        if self._calibrate:
            self._calibrate(self._params, self._resolved.net.statistics)

    def apply(self, function: ModelFunction, x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
        self._set_buffers()
        found = function(self._params, self._state, self._knobs, x, y, noise)
        return {name: value[None] for name, value in found.items()}

    def snapshots(self) -> list[Snapshot]:
        self._set_buffers()
        own = self._own_optimiser.moments() if self._own_optimiser else {}
        moments = self._optimiser.moments()
        return [Snapshot(self.epoch, to_cpu(self._params), to_cpu(self._state), to_cpu(moments), to_cpu(own))]

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        (snapshot,) = snapshots
        copy_into(self._params, snapshot.params)
        copy_into(self._state, snapshot.state)
        copy_into(self._optimiser.moments(), snapshot.moments)
        self._optimiser.set_count(snapshot.epoch * self.steps_per_epoch)
        if self._own_optimiser:
            copy_into(self._own_optimiser.moments(), snapshot.own_moments)
            self._own_optimiser.set_count(snapshot.epoch * self.steps_per_epoch)
        self.epoch = snapshot.epoch

    @property
    def _seed(self) -> int:
        return self._resolved.config.seed
