"""The fleet driver: many models that share a fleet key, trained together by the single step vmapped over a model axis.

The leaves of all models are stacked along a first axis and updated together by one fused optimiser. The vmapped step is
traced once into a flat program of tensor operations. On a GPU the whole step, including data gathering, schedule and
update, is captured as a CUDA graph and replayed, so that an epoch runs without the host; so are evaluation and
detectors. Frozen baselines come last in the stack: their frozen rows are a tail that the optimiser does not update.
Learning rates may differ between models: those with the same one are neighbours in the stack.
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
from walkback.training.optimisers import LeafOptimiser
from walkback.training.resolved_run import ResolvedRun
from walkback.training.step import StepOutput, StepSpec, step


class _Output(NamedTuple):
    """The outputs of a step's program."""

    gradients: Leaves
    """Gradients of the leaves trained in at least one model, with the rows of the models that train them."""
    own_gradients: Leaves
    logs: Tensor
    """[logs, models]"""
    rates: tuple[Tensor, ...]
    """The learning rates of the networks, and last that of the rule's learned leaves."""
    buffers: Leaves
    """The networks' running statistics."""


class Fleet(Driver):
    """Trains many models at once as one vmapped step."""

    def __init__(
        self,
        resolved_runs: Sequence[ResolvedRun],
        data: Dataset,
        device: torch.device,
        stream: torch.cuda.Stream | None = None,
    ):
        """`stream` is the stream to capture on, for a fleet that shares a GPU with concurrent fleets."""
        assert len({resolved.fleet_key() for resolved in resolved_runs}) == 1, "a fleet's models share one fleet key"
        set_exact_arithmetic(device)
        if device.type == "cuda":
            # A deadline may interrupt a warm-up anywhere, and an interrupted import cannot be repeated: import here.
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

        self._lrs = sorted({resolved.config.lr for resolved in resolved_runs})
        frozen = [resolved.shared_options.shell != "none" for resolved in resolved_runs]
        order = sorted(range(len(resolved_runs)), key=lambda index: (frozen[index], resolved_runs[index].config.lr))
        self._stacked_runs = [resolved_runs[index] for index in order]
        self._rows = [order.index(index) for index in range(len(resolved_runs))]
        """The row of each run in the stack."""
        self._params = _stack([resolved.params() for resolved in self._stacked_runs], device)
        self._state = _stack([resolved.state() for resolved in self._stacked_runs], device)
        knobs = [
            {k: torch.tensor(v, dtype=first.dtype) for k, v in resolved.knobs().items()}
            for resolved in self._stacked_runs
        ]
        self._knobs = _stack(knobs, device)
        self._trained = {name: count for name in self._params if (count := self._trained_rows(name))}
        """By leaf, the number of rows in which it is trained; these are the first rows."""

        # The schedule and the step counter are on the device: a captured step must not depend on the host.
        self._total = first.config.epochs * self.steps_per_epoch
        self._done = torch.zeros((), dtype=torch.float64, device=device)
        # torch's fused optimisers read the learning rate as float32 on a GPU and as float64 on the CPU.
        real = torch.float32 if device.type == "cuda" else torch.float64
        self._rates = [torch.zeros((), dtype=real, device=device) for _ in self._lrs]
        rate_rows = [self._lrs.index(resolved.config.lr) for resolved in self._stacked_runs]
        self._rate_rows = torch.tensor(rate_rows, device=device) if len(self._lrs) > 1 else None
        self._own_rate = torch.zeros((), dtype=real, device=device)
        trained = {name: self._params[name][:count] for name, count in self._trained.items()}
        learned = {name: leaf for name, leaf in self._state.items() if name.startswith(LEARNED)}
        self._optimiser = LeafOptimiser(trained, self._decay, self._rates, rate_rows, first.optimiser)
        self._own_optimiser = LeafOptimiser(learned, 0.0, [self._own_rate]) if learned else None

        # Models with the same seed train on the same batches: each batch is gathered once and shared.
        self._seeds = sorted({resolved.config.seed for resolved in resolved_runs})
        seed_rows = [self._seeds.index(resolved.config.seed) for resolved in self._stacked_runs]
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
        self._after_update = vmap(self._rule.after_update, in_dims=(0, 0, 0, None if self._rate_rows is None else 0))
        self._models_per_chunk = 1 if any(len(shape) == 3 for shape in self._net.state_shapes) else None
        """Models per call in `apply`; cuDNN's grouped convolutions of several models are slow."""
        # One model at a time: evaluation batches are large.
        self._logits = vmap(self._net.forward, in_dims=(0, None), chunk_size=1)
        self._statistics = vmap(self._net.statistics, in_dims=(0, None), chunk_size=1)
        self._calibration = Calibration(first, data, device) if self._net.is_calibrated else None
        self._calibrate = captured(self._set_statistics, device, stream)
        self._calibrated_at: int | None = None
        """The epoch at which the buffers were last computed."""
        self._captured_count = captured(self._count_correct, device, stream)
        self._captured_functions: dict[Hashable, Callable[[], Leaves]] = {}

    def warm_up(self) -> None:
        if self._device.type == "cuda" and self._graph is None:
            self._capture()

    def train_epoch(self, tick: Tick) -> list[dict[str, float]]:
        self.begin_epoch()
        for index in range(self.steps_per_epoch):
            self.take_step(index)
            tick(1)
        self.draw_next_order()
        return self.end_epoch()

    def begin_epoch(self) -> None:
        """Set the epoch's batches and reset the logs."""
        self.warm_up()
        self._order.copy_(self._next_order)
        if self._totals is not None:
            self._totals.zero_()

    def take_step(self, index: int) -> None:
        """Step `index` of the epoch; on a GPU it is enqueued and runs asynchronously."""
        if self._noise:
            copy_into(self._noise, self._stacked_noise(self.epoch, index))
        if self._graph is not None:
            self._graph.replay()
        else:
            with matmul_precision(self.resolved_runs[0]):
                self._step()

    def draw_next_order(self) -> None:
        """Draw the next epoch's batches, while the GPU still runs this epoch's steps."""
        if (self.epoch + 1) * self.steps_per_epoch < self._total:
            self._next_order = self._stacked_order(self.epoch + 1)

    def end_epoch(self) -> list[dict[str, float]]:
        """Wait for the epoch's last step and return each model's mean logs."""
        self.epoch += 1
        assert self._totals is not None, "an epoch has at least one step"
        means = (self._totals / self.steps_per_epoch).T.tolist()
        return [dict(zip(self._log_names, means[row], strict=True)) for row in self._rows]

    def _step(self) -> None:
        """One step of every model, in place; all tensors it reads and writes are on the device."""
        index = (self._done % self.steps_per_epoch).long().view(1)
        picks = dict(zip(self._choices, self._order.index_select(2, index).squeeze(2), strict=True))
        pixels, y = self._feed.gather(picks)
        inputs = (self._params, self._state, self._knobs, pixels, y, picks, self._noise, self._done)
        if self._program is None:
            program = trace_program(self._all_models, inputs)
            self._program = optimise_graph(program, self._total) if self._device.type == "cuda" else program
        output = self._program(*inputs)
        for name, value in output.buffers.items():
            self._params[name].copy_(value)
        for rate, now in zip(self._rates, output.rates, strict=False):
            rate.copy_(now)
        before = {n: leaf.clone() for n, leaf in self._params.items()} if self._rule.updates_state() else {}
        self._optimiser.update(output.gradients)
        if self._own_optimiser:
            self._own_rate.copy_(output.rates[-1])
            self._own_optimiser.update(output.own_gradients)
        if before:
            rate = self._rates[0] if self._rate_rows is None else torch.stack(self._rates)[self._rate_rows]
            decay = (rate * self._decay).to(self._params[next(iter(self._params))].dtype)
            copy_into(self._state, self._after_update(self._state, before, self._params, decay))
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
        """Gradients of all models on one batch per seed: the function that is traced."""
        x = self._feed.finish(pixels, picks)
        if self._seed_rows is not None:
            x, y = x[self._seed_rows], y[self._seed_rows]

        def one(params: Leaves, state: Leaves, knobs: Leaves, x: Tensor, y: Tensor, noise: Leaves) -> StepOutput:
            return step(self._spec, params, state, knobs, x, y, noise)

        output = vmap(one)(params, state, knobs, x, y, noise)
        self._log_names = tuple(output.logs)
        gradients = {name: output.gradients[name][:count] for name, count in self._trained.items()}
        factor = self._stacked_runs[0].schedule.factor(done, self._total, self.steps_per_epoch)
        rates = tuple(lr * factor for lr in (*self._lrs, self._rule.own_lr))
        logs = torch.stack([*output.logs.values()])
        return _Output(gradients, output.own_gradients, logs, rates, output.buffers)

    def _capture(self) -> None:
        """Capture one step as a CUDA graph, and undo the warm-up steps that capture runs."""
        mutable = self._mutable_tensors()
        saved = {name: leaf.clone() for name, leaf in mutable.items()}
        self._done.zero_()
        with matmul_precision(self.resolved_runs[0]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.compile's advice for developers.
            self._graph, _ = capture(self._step, self._stream)
        copy_into(mutable, saved)
        self._set_counts()

    def _mutable_tensors(self) -> Leaves:
        """Every tensor that a step changes, except the counters."""
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
        return self.accuracies(self.count_correct())

    def count_correct(self) -> Tensor:
        """Correctly classified test samples of each row of the stack; on a GPU the result may still be pending."""
        self._set_buffers()
        return self._captured_count()

    def accuracies(self, correct: Tensor) -> list[float]:
        """The result of `count_correct` as each run's accuracy."""
        counts = correct.tolist()
        return [counts[row] / self._test.answers for row in self._rows]

    def _count_correct(self) -> Tensor:
        correct = torch.zeros(len(self.resolved_runs), dtype=torch.int64, device=self._device)
        with torch.no_grad():
            for x, y in self._test.batches():
                correct += (self._logits(self._params, x).argmax(-1) == y).flatten(1).sum(-1)
        return correct

    def _set_buffers(self) -> None:
        if self._calibration and self._calibrated_at != self.epoch:
            self._calibrate()
            self._calibrated_at = self.epoch

    def _set_statistics(self) -> None:
        assert self._calibration
        self._calibration(self._params, self._statistics)

    def apply(self, function: ModelFunction, x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
        self._set_buffers()

        def apply_to_all() -> Leaves:
            each = vmap(function, in_dims=(0, 0, 0, None, None, None), chunk_size=self._models_per_chunk)
            found: Leaves = each(self._params, self._state, self._knobs, x, y, noise)
            return found

        # Applied after every epoch, so captured once. The closure keeps x and y alive, so their `id()`s stay unique.
        captured_function = self._captured_functions.setdefault(
            (function, id(x), id(y)), captured(apply_to_all, self._device, self._stream)
        )
        found = captured_function()
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
        assert len(epochs) == 1, "all snapshots of a fleet are of one epoch"
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
        frozen = [resolved.is_frozen(leaf) for resolved in self._stacked_runs]
        assert frozen == sorted(frozen), "models in which a leaf is frozen come last in the stack"
        return frozen.count(False)

    def _stacked_order(self, epoch: int) -> Tensor:
        """An epoch's random choices (`Feed.order`) as [choice, seed, step, sample], on the CPU."""
        orders = [self._feed.order(seed, epoch) for seed in self._seeds]
        return torch.stack([torch.stack([order[name] for order in orders]) for name in self._choices])

    def _stacked_noise(self, epoch: int, index: int) -> Leaves:
        return _stack([resolved.noise(epoch, index) for resolved in self._stacked_runs], self._device)


def _stack(models: Sequence[Leaves], device: torch.device) -> Leaves:
    return {name: torch.stack([leaves[name] for leaves in models]).to(device) for name in models[0]}


def _to_host(leaves: Leaves) -> Leaves:
    return {name: leaf.detach().cpu() for name, leaf in leaves.items()}


def _row(leaves: Leaves, row: int) -> Leaves:
    return {name: leaf[row].clone() for name, leaf in leaves.items()}
