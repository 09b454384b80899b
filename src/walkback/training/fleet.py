"""The fleet driver: many models of one bucket at once, as the single step vmapped over a model axis.

Leaves of all models are stacked along a first axis and updated together by one fused AdamW. The vmapped step is traced
once into a flat program of tensor operations. On a GPU the whole step, data gathering, schedule and update included, is
captured as a CUDA graph and replayed, so that an epoch runs without the host; so are evaluation and detectors. Shells
come last in the stack: what is frozen in them is a tail that the optimiser does not see.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from walkback.credit.rule import LEARNED
from walkback.data.dataset import Dataset
from walkback.data.feed import Feed, Order, TestSet
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
)
from walkback.training.gpu.cuda_graph import capture, captured
from walkback.training.gpu.graph_program import optimise_graph, trace_program
from walkback.training.optimisers import AdamW, cosine_tensor
from walkback.training.resolved_run import ResolvedRun
from walkback.training.step import StepOutput, StepSpec, step


class _Output(NamedTuple):
    """What a step's program gives."""

    gradients: Leaves
    """Of the leaves that are trained in any model, each with the rows in which it is."""
    own_gradients: Leaves
    logs: Tensor
    """[logs, models]"""
    rates: tuple[Tensor, Tensor]
    """Learning rates of the network and of the rule's own leaves."""


class Fleet(Driver):
    def __init__(
        self,
        resolved_runs: Sequence[ResolvedRun],
        data: Dataset,
        device: torch.device,
        stream: torch.cuda.Stream | None = None,
    ):
        """`stream` is for one that shares a GPU with other fleets: the stream that what it does is recorded on."""
        assert len({resolved.fleet_key() for resolved in resolved_runs}) == 1, (
            "a fleet's models must share their bucket"
        )
        set_exact_arithmetic(device)
        if device.type == "cuda":
            # Whoever is short of time may end a warm-up anywhere, and an import that was cut off cannot be repeated.
            import_module("torch._inductor.compile_fx")
        first = resolved_runs[0]
        self.resolved_runs = tuple(resolved_runs)
        self.epoch = 0
        self._device = device
        self._stream = stream
        self._rule = first.rule
        self._net = first.net
        self._decay = first.config.weight_decay
        self._feed = Feed(data, first.config.batch, first.augment, first.dtype, device)
        self._test = TestSet(data, first.dtype, device)
        self.steps_per_epoch = self._feed.steps

        order = sorted(range(len(resolved_runs)), key=lambda index: resolved_runs[index].shared_options.shell != "none")
        self._ranked = [resolved_runs[index] for index in order]
        self._rows = [order.index(index) for index in range(len(resolved_runs))]
        """The row of each recipe in the stack."""
        self._params = _stack([resolved.params() for resolved in self._ranked], device)
        self._state = _stack([resolved.state() for resolved in self._ranked], device)
        knobs = [
            {k: torch.tensor(v, dtype=first.dtype) for k, v in resolved.knobs().items()} for resolved in self._ranked
        ]
        self._knobs = _stack(knobs, device)
        self._trained = {name: count for name in self._params if (count := self._trained_rows(name))}
        """By leaf, in how many rows it is trained: the first ones."""

        # The schedule and the step counter live on the device: a captured step must not ask the host.
        self._total = first.config.epochs * self.steps_per_epoch
        self._done = torch.zeros((), dtype=torch.float64, device=device)
        # torch's fused AdamW reads a learning rate on a GPU as float32; on the CPU it takes float64.
        real = torch.float32 if device.type == "cuda" else torch.float64
        self._rate = torch.zeros((), dtype=real, device=device)
        self._own_rate = torch.zeros((), dtype=real, device=device)
        trained = {name: self._params[name][:count] for name, count in self._trained.items()}
        learned = {name: leaf for name, leaf in self._state.items() if name.startswith(LEARNED)}
        self._optimiser = AdamW(trained, self._decay, lr=self._rate)
        self._own_optimiser = AdamW(learned, 0.0, lr=self._own_rate) if learned else None

        # Models of one seed see the same batches: each is gathered once and shared.
        self._seeds = sorted({resolved.config.seed for resolved in resolved_runs})
        seed_rows = [self._seeds.index(resolved.config.seed) for resolved in self._ranked]
        self._seed_rows = torch.tensor(seed_rows, device=device) if seed_rows != [*range(len(resolved_runs))] else None
        self._choices = tuple(self._feed.order(self._seeds[0], 0))
        self._next_order = self._stacked_order(0)
        self._order = self._next_order.to(device)
        self._noise = self._stacked_noise(0, 0)
        self._program: Callable[..., _Output] | None = None
        self._log_names: tuple[str, ...] = ()
        self._totals: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

        self._spec = StepSpec.of(*resolved_runs)
        self._after = vmap(self._rule.after_update, in_dims=(0, 0, 0, None))
        self._looked_at = 1 if self._net.kind == "maps" else None
        """Models at once; a library's convolutions of several models together are slow."""
        # One model after the other: batches of evaluation are large.
        self._logits = vmap(self._net.forward, in_dims=(0, None), chunk_size=1)
        self._statistics = vmap(self._net.statistics, in_dims=(0, None), chunk_size=1)
        self._calibration = Calibration(first, data, device) if self._net.buffers else None
        self._calibrate = captured(self._take_statistics, device, stream)
        self._calibrated_at: int | None = None
        """The epoch whose weights the buffers belong to."""
        self._count_right = captured(self._right, device, stream)
        self._looks: dict[Hashable, Callable[[], Leaves]] = {}

    def warm_up(self) -> None:
        if self._device.type == "cuda" and self._graph is None:
            self._capture()

    def train_epoch(self, tick: Tick) -> list[dict[str, float]]:
        self.begin_epoch()
        for index in range(self.steps_per_epoch):
            self.take_step(index)
            tick(1)
        self.draw_next()
        return self.end_epoch()

    def begin_epoch(self) -> None:
        self.warm_up()
        self._order.copy_(self._next_order)
        if self._totals is not None:
            self._totals.zero_()

    def take_step(self, index: int) -> None:
        """The step `index` of the epoch; a GPU is only told of it."""
        if self._noise:
            copy_into(self._noise, self._stacked_noise(self.epoch, index))
        if self._graph is not None:
            self._graph.replay()
        else:
            with matmul_precision(self.resolved_runs[0]):
                self._step()

    def draw_next(self) -> None:
        """Draw the next epoch's batches, while a GPU is still at work on this one."""
        if (self.epoch + 1) * self.steps_per_epoch < self._total:
            self._next_order = self._stacked_order(self.epoch + 1)

    def end_epoch(self) -> list[dict[str, float]]:
        """Wait for the epoch's last step; the mean of each log."""
        self.epoch += 1
        assert self._totals is not None, "an epoch has a step"
        means = (self._totals / self.steps_per_epoch).T.tolist()
        return [dict(zip(self._log_names, means[row], strict=True)) for row in self._rows]

    def _step(self) -> None:
        """One step of every model, in place; everything it touches is on the device."""
        at = (self._done % self.steps_per_epoch).long().view(1)
        picks = dict(zip(self._choices, self._order.index_select(2, at).squeeze(2), strict=True))
        pixels, y = self._feed.gather(picks)
        inputs = (self._params, self._state, self._knobs, pixels, y, picks, self._noise, self._done)
        if self._program is None:
            program = trace_program(self._all_models, inputs)
            self._program = optimise_graph(program, self._total) if self._device.type == "cuda" else program
        output = self._program(*inputs)
        self._rate.copy_(output.rates[0])
        before = {n: leaf.clone() for n, leaf in self._params.items()} if self._rule.updates_state() else {}
        self._optimiser.update(output.gradients)
        if self._own_optimiser:
            self._own_rate.copy_(output.rates[1])
            self._own_optimiser.update(output.own_gradients)
        if before:
            decay = (self._rate * self._decay).to(self._params[next(iter(self._params))].dtype)
            copy_into(self._state, self._after(self._state, before, self._params, decay))
        if self._totals is None:
            self._totals = torch.zeros_like(output.logs)
        self._totals += output.logs
        self._done += 1

    def _all_models(
        self,
        params: Leaves,
        state: Leaves,
        knobs: Leaves,
        pixels: Tensor,
        y: Tensor,
        picks: Order,
        noise: Leaves,
        done: Tensor,
    ) -> _Output:
        """Gradients of all models for one batch of each seed: the function that is traced."""
        x = self._feed.finish(pixels, picks)
        if self._seed_rows is not None:
            x, y = x[self._seed_rows], y[self._seed_rows]

        def one(params: Leaves, state: Leaves, knobs: Leaves, x: Tensor, y: Tensor, noise: Leaves) -> StepOutput:
            return step(self._spec, params, state, knobs, x, y, noise)

        output = vmap(one)(params, state, knobs, x, y, noise)
        self._log_names = tuple(output.logs)
        gradients = {name: output.gradients[name][:count] for name, count in self._trained.items()}
        lr, own_lr = self._ranked[0].config.lr, self._rule.own_lr
        rates = (cosine_tensor(lr, done, self._total), cosine_tensor(own_lr, done, self._total))
        return _Output(gradients, output.own_gradients, torch.stack([*output.logs.values()]), rates)

    def _capture(self) -> None:
        """Record one step as a CUDA graph, and undo the steps that recording needs."""
        live = self._live()
        kept = {name: leaf.clone() for name, leaf in live.items()}
        self._done.zero_()
        with matmul_precision(self.resolved_runs[0]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Advice of torch's compiler, to those who write torch.
            self._graph, _ = capture(self._step, self._stream)
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
        return self.accuracies(self.count_right())

    def count_right(self) -> Tensor:
        """Test samples that each row of the stack gets right; a GPU may be still at work on it."""
        self._set_buffers()
        return self._count_right()

    def accuracies(self, right: Tensor) -> list[float]:
        """What `count_right` gave, as each recipe's share."""
        counts = right.tolist()
        return [counts[row] / len(self._test) for row in self._rows]

    def _right(self) -> Tensor:
        right = torch.zeros(len(self.resolved_runs), dtype=torch.int64, device=self._device)
        with torch.no_grad():
            for x, y in self._test.batches():
                right += (self._logits(self._params, x).argmax(-1) == y).sum(-1)
        return right

    def _set_buffers(self) -> None:
        if self._calibration and self._calibrated_at != self.epoch:
            self._calibrate()
            self._calibrated_at = self.epoch

    def _take_statistics(self) -> None:
        assert self._calibration
        self._calibration(self._params, self._statistics)

    def apply(self, function: ModelFunction, x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
        self._set_buffers()

        def look() -> Leaves:
            each = vmap(function, in_dims=(0, 0, 0, None, None, None), chunk_size=self._looked_at)
            found: Leaves = each(self._params, self._state, self._knobs, x, y, noise)
            return found

        # Looked at again after every epoch: what is kept holds the samples, so that their names stay theirs.
        known = self._looks.setdefault((function, id(x), id(y)), captured(look, self._device, self._stream))
        found = known()
        rows = torch.tensor(self._rows, device=self._device)
        return {name: values[rows] for name, values in found.items()}

    def snapshots(self) -> list[Snapshot]:
        self._set_buffers()
        params, state, moments = _to_host(self._params), _to_host(self._state), _to_host(self._optimiser.moments())
        own = _to_host(self._own_optimiser.moments()) if self._own_optimiser else {}
        found = []
        for row, resolved in zip(self._rows, self.resolved_runs, strict=True):
            trained = {n: m for n, m in moments.items() if not resolved.is_frozen(n.partition(".")[2])}
            found.append(Snapshot(self.epoch, _row(params, row), _row(state, row), _row(trained, row), _row(own, row)))
        return found

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        epochs = {snapshot.epoch for snapshot in snapshots}
        assert len(epochs) == 1, "a fleet goes on from one epoch"
        assert len(snapshots) == len(self.resolved_runs), "one snapshot for each model"
        snapshots = [snapshots[self._rows.index(row)] for row in range(len(snapshots))]
        copy_into(self._params, _stack([s.params for s in snapshots], self._device))
        copy_into(self._state, _stack([s.state for s in snapshots], self._device))
        for name, moment in self._optimiser.moments().items():
            for row, snapshot in enumerate(snapshots):
                if name in snapshot.moments:
                    moment[row].copy_(snapshot.moments[name])
        if self._own_optimiser:
            copy_into(self._own_optimiser.moments(), _stack([s.own_moments for s in snapshots], self._device))
        self.epoch = epochs.pop()
        self._calibrated_at = None
        self._next_order = self._stacked_order(self.epoch)
        self._set_counts()

    def _trained_rows(self, leaf: str) -> int:
        frozen = [resolved.is_frozen(leaf) for resolved in self._ranked]
        assert frozen == sorted(frozen), "what is frozen in some models is frozen in the last ones"
        return frozen.count(False)

    def _stacked_order(self, epoch: int) -> Tensor:
        """An epoch's choices as [choice, seed, step, sample], on the CPU."""
        orders = [self._feed.order(seed, epoch) for seed in self._seeds]
        return torch.stack([torch.stack([order[name] for order in orders]) for name in self._choices])

    def _stacked_noise(self, epoch: int, index: int) -> Leaves:
        return _stack([resolved.noise(epoch, index) for resolved in self._ranked], self._device)


def _stack(models: Sequence[Leaves], device: torch.device) -> Leaves:
    return {name: torch.stack([leaves[name] for leaves in models]).to(device) for name in models[0]}


def _to_host(leaves: Leaves) -> Leaves:
    return {name: leaf.detach().cpu() for name, leaf in leaves.items()}


def _row(leaves: Leaves, row: int) -> Leaves:
    return {name: leaf[row].clone() for name, leaf in leaves.items()}
