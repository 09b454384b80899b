"""Train one group of fleets into its run folders: resume from the last common checkpoint, log, save checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch

from walkback.core.errors import WalkbackError
from walkback.core.jsonable import jsonable
from walkback.data.dataset import Dataset
from walkback.data.feed import TestSet
from walkback.runs import store
from walkback.runs.checkpoints import arrays_of, as_numpy, check_checkpoint, snapshot_of
from walkback.runs.deadline import Deadline, TimeIsUpError
from walkback.runs.gpu_queue import gpu_turn
from walkback.training.driver import Driver, Trainer
from walkback.training.fleet import Fleet
from walkback.training.gpu.concurrent_fleets import ConcurrentFleets
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.single import Single
from walkback.training.test_losses import test_losses

if TYPE_CHECKING:
    from walkback.runs.train_runs import EpochObserver, ProgressListener, TrainOptions


def common_epoch(runs: Sequence[store.Run | None]) -> int:
    """The latest epoch from which all of these runs can resume; None stands for a run that is not begun."""
    each = [run.checkpoint_epochs().keys() if run else {0} for run in runs]
    return max(set.intersection(*map(set, each)))


def train_group(
    group: FleetGroup,
    members: Sequence[store.Run],
    data: Dataset,
    device: torch.device,
    options: TrainOptions,
    listener: ProgressListener,
    observer: EpochObserver | None,
    deadline: Deadline,
) -> None:
    """Train the group's models into `members`, one run each, from the epoch it was planned to resume from."""
    try:
        for run in members:
            run.lock()
        if common_epoch(members) != group.done:
            raise store.RunLockedError(
                f"Another process has just trained {members[0].path}. Give the same command again."
            )
        saved = _checkpoints(group, members, listener)
        driver = _driver(group, data, device)
        for run in members:
            run.rewind(group.done)
        spent = max((checkpoint.seconds for checkpoint in saved), default=0.0)
        snapshots = [snapshot_of(checkpoint) for checkpoint in saved]
        if snapshots:
            driver.restore(snapshots)
        clock = _Clock(spent)
        seen = partial(observer.after_epoch, data=data, device=device) if observer else _unseen
        with ExitStack() as stack:
            # Compiling and waiting for the GPU can take minutes each, and there is nothing to save yet.
            with deadline.interrupts():
                driver.warm_up()
                clock.exclude(stack.enter_context(gpu_turn(device)))
            if observer and driver.epoch == 0:
                for part, own in _parts(driver, members):
                    observer.before_training(part, own, data, device)
            results = _epochs(driver, members, clock, options, listener, seen, deadline)
            if results is not None:
                _finish(driver, members, results, clock, data, device)
        # After the GPU is released: measuring keeps the host busy and hardly uses the GPU, so the next fleet may start.
        if results is not None and observer:
            observer.after_training(members, data)
    except TimeIsUpError:
        return
    finally:
        for run in members:
            run.unlock()


def _checkpoints(group: FleetGroup, members: Sequence[store.Run], listener: ProgressListener) -> list[store.Checkpoint]:
    """The members' checkpoints of the epoch to resume from, all checked before anything is changed."""
    found = []
    for resolved, run in zip(group.resolved_runs, members, strict=True):
        if checkpoint := run.checkpoint(group.done):
            check_checkpoint(run, checkpoint, resolved)
            if not checkpoint.is_hashed:
                listener.warned(
                    f"{run.path} resumes from a checkpoint of walkback 0.8.1 or older, which has no content hash: "
                    "its shapes were checked, its numbers were not."
                )
            found.append(checkpoint)
    return found


def _unseen(_driver: Driver, members: Sequence[store.Run]) -> list[dict[str, Any]]:
    return [{} for _ in members]


class _Clock:
    """Seconds of training, summed over interruptions."""

    def __init__(self, spent: float):
        self._start = time.monotonic() - spent
        self.saved = self.seconds

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def exclude(self, seconds: float) -> None:
        """Do not count these last seconds: they were spent waiting."""
        self._start += seconds


def _epochs(
    driver: Trainer,
    members: Sequence[store.Run],
    clock: _Clock,
    options: TrainOptions,
    listener: ProgressListener,
    seen: Callable[[Driver, Sequence[store.Run]], list[dict[str, Any]]],
    deadline: Deadline,
) -> list[float] | None:
    """Train to the last epoch and return the test accuracies, or stop at a checkpoint and return None."""
    total = driver.resolved_runs[0].config.epochs
    accuracies = driver.test_accuracy() if driver.epoch == total else []
    while driver.epoch < total:
        logs = driver.train_epoch(listener.stepped)
        accuracies = driver.test_accuracy()
        readings = [reading for each in _parts(driver, members) for reading in seen(*each)]
        for run, log, accuracy, reading in zip(members, logs, accuracies, readings, strict=True):
            run.append_log(jsonable({"epoch": driver.epoch, **log, "test_acc": accuracy, **reading}))
        if options.stop_on_objection:
            _stop_on_objection(driver, members, logs, clock)
        is_late = deadline.is_past
        if driver.epoch == total or is_late or clock.seconds - clock.saved >= options.checkpoint_seconds:
            _save(driver, members, clock)
        if is_late and driver.epoch < total:
            return None
    return accuracies


def _stop_on_objection(
    driver: Trainer, members: Sequence[store.Run], logs: Sequence[dict[str, float]], clock: _Clock
) -> None:
    """Stop if a rule reports that its credit has become useless; what was trained is kept."""
    for resolved, run, log in zip(driver.resolved_runs, members, logs, strict=True):
        objection = resolved.rule.objection(log)
        if objection:
            _save(driver, members, clock)
            raise WalkbackError(f"{run.path} was stopped after epoch {driver.epoch}: {objection}.")


def _save(driver: Trainer, members: Sequence[store.Run], clock: _Clock) -> None:
    names = tuple(run.name for run in members)
    for run, snapshot in zip(members, driver.snapshots(), strict=True):
        arrays = arrays_of(snapshot)
        run.save_checkpoint(store.Checkpoint(snapshot.epoch, run.log_length(), names, clock.seconds, arrays))
    for run in members:
        run.drop_previous()
    clock.saved = clock.seconds


def _finish(
    driver: Trainer,
    members: Sequence[store.Run],
    accuracies: Sequence[float],
    clock: _Clock,
    data: Dataset,
    device: torch.device,
) -> None:
    share = clock.seconds / len(members)
    timings = {"seconds": share, "fleet_seconds": clock.seconds, "fleet_size": len(members)}
    for resolved, run, snapshot, accuracy in zip(
        driver.resolved_runs, members, driver.snapshots(), accuracies, strict=True
    ):
        result = {"test_acc": accuracy, "epochs": snapshot.epoch}
        if resolved.net.per_token:
            params = {name: leaf.to(device) for name, leaf in snapshot.params.items()}
            tests = TestSet(data, resolved.dtype, device)
            result["test_loss"] = test_losses(resolved.net, params, tests).double().mean().item()
        run.finish(as_numpy(snapshot.params), as_numpy(snapshot.state), result, timings)
    for run in members:
        run.drop_checkpoints()


def _driver(group: FleetGroup, data: Dataset, device: torch.device) -> Trainer:
    if group.driver == "single":
        return Single(group.resolved_runs[0], data, device)
    if len(group.fleets) > 1:
        return ConcurrentFleets(group.fleets, data, device)
    return Fleet(group.resolved_runs, data, device)


def _parts(driver: Trainer, members: Sequence[store.Run]) -> list[tuple[Driver, Sequence[store.Run]]]:
    """The trainer's drivers, each with its own runs."""
    ends = [*accumulate(len(part.resolved_runs) for part in driver.drivers)]
    return [(part, members[start:end]) for part, (start, end) in zip(driver.drivers, pairwise([0, *ends]), strict=True)]
