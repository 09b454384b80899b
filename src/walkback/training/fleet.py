"""The fleet driver: many models of one bucket at once, as the single step vmapped over a model axis.

Leaves of all models are stacked along a first axis and updated together by one fused AdamW. The vmapped step is traced
once into a flat program of tensor operations, without vmap's own cost in every step and without what nothing needs. On
a GPU the whole step, data gathering, schedule and update included, is captured as a CUDA graph and replayed, so that an
epoch runs without the host. A leaf that is frozen in some models is updated in all of them and then set back in those
to its unchanging values; one that is frozen in all of them is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from walkback.credit.rule import LEARNED
from walkback.data.dataset import Dataset
from walkback.data.feed import Feed, Order, TestSet
from walkback.nets.network import Leaves
from walkback.training.driver import Calibration, Driver, Look, Snapshot, Tick, copy_into, prepare
from walkback.training.optim import AdamW, cosine_tensor
from walkback.training.recipe import Recipe
from walkback.training.step import StepOutput, StepSpec, step


class Fleet(Driver):
    def __init__(self, recipes: Sequence[Recipe], data: Dataset, device: torch.device):
        assert len({recipe.bucket() for recipe in recipes}) == 1, "a fleet's models must share their bucket"
        prepare(device)
        first = recipes[0]
        self.recipes = tuple(recipes)
        self.epoch = 0
        self._device = device
        self._rule = first.rule
        self._net = first.net
        self._decay = first.config.weight_decay
        self._feed = Feed(data, first.config.batch, first.augment, first.dtype, device)
        self._test = TestSet(data, first.dtype, device)
        self.steps_per_epoch = self._feed.steps

        self._params = _stack([recipe.params() for recipe in recipes], device)
        self._state = _stack([recipe.state() for recipe in recipes], device)
        knobs = [{k: torch.tensor(v, dtype=first.dtype) for k, v in recipe.knobs().items()} for recipe in recipes]
        self._knobs = _stack(knobs, device)
        frozen = {name: self._frozen_rows(name) for name in self._params}
        trained = {name: leaf for name, leaf in self._params.items() if len(frozen[name]) < len(recipes)}
        self._frozen = {name: frozen[name] for name in trained if len(frozen[name])}
        self._held = {name: self._params[name][rows] for name, rows in self._frozen.items()}

        spec = StepSpec.of(*recipes)

        def one(params: Leaves, state: Leaves, knobs: Leaves, x: Tensor, y: Tensor, noise: Leaves) -> StepOutput:
            return step(spec, params, state, knobs, x, y, noise)

        self._steps: Callable[..., StepOutput] = vmap(one)
        self._is_traced = False
        self._after = vmap(self._rule.after_update, in_dims=(0, 0, 0, None))
        self._logits = vmap(self._net.forward, in_dims=(0, None))
        self._statistics = vmap(self._net.statistics, in_dims=(0, None))
        self._calibrate = Calibration(first, data, device) if self._net.buffers else None

        # The schedule and the step counter live on the device: a captured step must not ask the host.
        self._lr, self._total = first.config.lr, first.config.epochs * self.steps_per_epoch
        self._done = torch.zeros((), dtype=torch.float64, device=device)
        self._in_epoch = torch.zeros(1, dtype=torch.int64, device=device)
        # torch's fused AdamW reads a learning rate on a GPU as float32; on the CPU it takes float64.
        real = torch.float32 if device.type == "cuda" else torch.float64
        self._rate = torch.zeros((), dtype=real, device=device)
        self._own_rate = torch.zeros((), dtype=real, device=device)
        learned = {name: leaf for name, leaf in self._state.items() if name.startswith(LEARNED)}
        self._optimiser = AdamW(trained, self._decay, lr=self._rate)
        self._own_optimiser = AdamW(learned, 0.0, lr=self._own_rate) if learned else None

        # Models of one seed see the same batches: each is gathered once and shared.
        self._seeds = sorted({recipe.config.seed for recipe in recipes})
        self._seed_rows = torch.tensor([self._seeds.index(recipe.config.seed) for recipe in recipes], device=device)
        self._order = self._stacked_order(0)
        self._noise = self._stacked_noise(0, 0)
        self._totals: Leaves = {}
        self._graph: torch.cuda.CUDAGraph | None = None

    def train_epoch(self, tick: Tick) -> list[dict[str, float]]:
        copy_into(self._order, self._stacked_order(self.epoch))
        if self._device.type == "cuda" and self._graph is None:
            self._capture()
        self._in_epoch.zero_()
        for total in self._totals.values():
            total.zero_()
        for index in range(self.steps_per_epoch):
            if self._noise:
                copy_into(self._noise, self._stacked_noise(self.epoch, index))
            if self._graph is not None:
                self._graph.replay()
            else:
                self._step()
            tick(1)
        self.epoch += 1
        means = {name: (total / self.steps_per_epoch).tolist() for name, total in self._totals.items()}
        return [{name: values[row] for name, values in means.items()} for row in range(len(self.recipes))]

    def _step(self) -> None:
        """One step of every model, in place; everything it touches is on the device."""
        picks = {name: values.index_select(1, self._in_epoch).squeeze(1) for name, values in self._order.items()}
        x, y = self._feed.take(picks)
        if len(self._seeds) < len(self.recipes):
            x, y = x[self._seed_rows], y[self._seed_rows]
        inputs = (self._params, self._state, self._knobs, x, y, self._noise)
        if not self._is_traced:
            self._steps = _flat_program(self._steps, inputs)
            self._is_traced = True
        output = self._steps(*inputs)
        self._rate.copy_(cosine_tensor(self._lr, self._done, self._total))
        before = {n: leaf.clone() for n, leaf in self._params.items()} if self._rule.updates_state() else {}
        self._optimiser.update(output.gradients)
        for name, rows in self._frozen.items():
            self._params[name].index_copy_(0, rows, self._held[name])
        if self._own_optimiser:
            self._own_rate.copy_(cosine_tensor(self._rule.own_lr, self._done, self._total))
            self._own_optimiser.update(output.own_gradients)
        if before:
            decay = (self._rate * self._decay).to(self._params[next(iter(self._params))].dtype)
            copy_into(self._state, self._after(self._state, before, self._params, decay))
        for name, value in output.logs.items():
            if name not in self._totals:
                self._totals[name] = torch.zeros_like(value)
            self._totals[name] += value
        self._done += 1
        self._in_epoch += 1

    def _capture(self) -> None:
        """Record one step as a CUDA graph, and undo the warm-up steps that recording needs."""
        live = self._live()
        kept = {name: leaf.clone() for name, leaf in live.items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._done.zero_()
                self._in_epoch.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self._graph = graph
        copy_into(live, kept)
        self._set_counts()

    def _live(self) -> Leaves:
        """Every tensor a step changes, but for the counters."""
        found = {f"params.{n}": leaf for n, leaf in self._params.items()}
        found |= {f"state.{n}": leaf for n, leaf in self._state.items()}
        found |= {f"moments.{n}": leaf for n, leaf in self._optimiser.moments().items()}
        if self._own_optimiser:
            found |= {f"own.{n}": leaf for n, leaf in self._own_optimiser.moments().items()}
        return found

    def _set_counts(self) -> None:
        done = self.epoch * self.steps_per_epoch
        self._done.fill_(done)
        self._optimiser.set_count(done)
        if self._own_optimiser:
            self._own_optimiser.set_count(done)

    def test_accuracy(self) -> list[float]:
        self._set_buffers()
        right = torch.zeros(len(self.recipes), dtype=torch.int64, device=self._device)
        with torch.no_grad():
            for x, y in self._test.batches():
                right += (self._logits(self._params, x).argmax(-1) == y).sum(-1)
        return [count / len(self._test) for count in right.tolist()]

    def _set_buffers(self) -> None:
        if self._calibrate:
            self._calibrate(self._params, self._statistics)

    def apply(self, function: Look, x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
        self._set_buffers()
        each = vmap(function, in_dims=(0, 0, 0, None, None, None))
        found: Leaves = each(self._params, self._state, self._knobs, x, y, noise)
        return found

    def snapshots(self) -> list[Snapshot]:
        self._set_buffers()
        params, state, moments = _to_host(self._params), _to_host(self._state), _to_host(self._optimiser.moments())
        own = _to_host(self._own_optimiser.moments()) if self._own_optimiser else {}
        found = []
        for row, recipe in enumerate(self.recipes):
            trained = {n: m for n, m in moments.items() if not recipe.is_frozen(n.partition(".")[2])}
            found.append(Snapshot(self.epoch, _row(params, row), _row(state, row), _row(trained, row), _row(own, row)))
        return found

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        epochs = {snapshot.epoch for snapshot in snapshots}
        assert len(epochs) == 1, "a fleet goes on from one epoch"
        assert len(snapshots) == len(self.recipes), "one snapshot for each model"
        copy_into(self._params, _stack([s.params for s in snapshots], self._device))
        copy_into(self._state, _stack([s.state for s in snapshots], self._device))
        for name, moment in self._optimiser.moments().items():
            for row, snapshot in enumerate(snapshots):
                if name in snapshot.moments:
                    moment[row].copy_(snapshot.moments[name])
        if self._own_optimiser:
            copy_into(self._own_optimiser.moments(), _stack([s.own_moments for s in snapshots], self._device))
        for name, rows in self._frozen.items():
            self._held[name].copy_(self._params[name][rows])
        self.epoch = epochs.pop()
        self._set_counts()

    def _frozen_rows(self, leaf: str) -> Tensor:
        rows = [row for row, recipe in enumerate(self.recipes) if recipe.is_frozen(leaf)]
        return torch.tensor(rows, dtype=torch.int64, device=self._device)

    def _stacked_order(self, epoch: int) -> Order:
        return _stack([self._feed.order(seed, epoch) for seed in self._seeds], self._device)

    def _stacked_noise(self, epoch: int, index: int) -> Leaves:
        return _stack([recipe.noise(epoch, index) for recipe in self.recipes], self._device)


def _flat_program(function: Callable[..., StepOutput], inputs: tuple[Any, ...]) -> Callable[..., StepOutput]:
    """The same function as a list of tensor operations, without those whose results are not used."""
    program = make_fx(function)(*inputs)
    program.graph.eliminate_dead_code()
    program.recompile()
    return program


def _stack(models: Sequence[Leaves], device: torch.device) -> Leaves:
    return {name: torch.stack([leaves[name] for leaves in models]).to(device) for name in models[0]}


def _to_host(leaves: Leaves) -> Leaves:
    return {name: leaf.detach().cpu() for name, leaf in leaves.items()}


def _row(leaves: Leaves, row: int) -> Leaves:
    return {name: leaf[row].clone() for name, leaf in leaves.items()}
