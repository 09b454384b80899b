"""Train runs into their folders: plan fleets, train, log, checkpoint, finish; resume after an interruption."""

from __future__ import annotations

import gc
import math
import os
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from walkback.core.errors import InputError, WalkbackError
from walkback.core.files import friendly_os_errors
from walkback.core.settings import convert, hints_of, require_at_least
from walkback.data.dataset import Dataset, DataSource
from walkback.runs import store
from walkback.runs.check_record import check_data, check_record, refuse_changed_source
from walkback.runs.checkpoints import check_checkpoint
from walkback.runs.deadline import Deadline
from walkback.runs.provenance import provenance
from walkback.runs.stored_plan import PlannedGroup, forget, read_plan, store_plan
from walkback.runs.train_group import common_epoch, train_group
from walkback.training.driver import Driver
from walkback.training.out_of_memory import is_out_of_memory
from walkback.training.planning.fleet_plan import FleetGroup, halves, suitable_threads
from walkback.training.planning.plan_fleets import plan_fleets, settled_groups
from walkback.training.resolved_run import ResolvedRun

_NO_RUNS: Mapping[str, store.Run] = {}
GPU_MEMORY_SHARE, CPU_MEMORY_SHARE = 0.5, 0.25
"""Share of a device's memory that fleets are planned for. The memory of a fleet is estimated, and detectors need some
beside it; on the CPU other programs do, too."""

_EXPECTED = {
    "resume": "True or False",
    "predict": "True or False",
    "stop_on_objection": "True or False",
    "max_seconds": "a number of seconds, or None",
    "checkpoint_seconds": "a number of seconds",
    "memory": "a number of bytes, or None",
    "sharing": "a number of processes",
}


@dataclass(frozen=True)
class TrainOptions:
    """How runs are trained; none of it changes what a run computes.

    Values of the wrong type are refused as those of a configuration are; paths may be given as text.
    """

    out: Path = Path("runs")
    resume: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    driver: Literal["auto", "single", "fleet"] = "auto"
    data_root: Path | None = None
    max_seconds: float | None = None
    """Stop at the first end of an epoch after this many seconds, or at once where none was begun."""
    checkpoint_seconds: float = 30.0
    """Save a checkpoint at the first epoch end after this many seconds."""
    memory: int | None = None
    """Plan fleets that fit into this many bytes, even if the device has more; a stored plan is cut again to fit."""
    sharing: int = 1
    """Number of processes that train on the device at once; fleets are planned for an equal share of its memory."""
    predict: bool = True
    """Time the device before planning, so that the plan can predict how long training takes."""
    stop_on_objection: bool = True
    """Stop where a rule reports that its credit has become useless; tuning runs go on, and their accuracy shows it."""
    command: tuple[str, ...] = ()
    """The command line that asked for the training, for the record."""

    def __post_init__(self) -> None:
        hints = hints_of(TrainOptions)
        for name in (
            "resume",
            "device",
            "driver",
            "max_seconds",
            "checkpoint_seconds",
            "memory",
            "sharing",
            "predict",
            "stop_on_objection",
        ):
            value = getattr(self, name)
            if isinstance(value, str) and name not in ("device", "driver"):
                raise InputError(f"{name} is the text {value!r}; expected {_EXPECTED[name]}.")
            object.__setattr__(self, name, convert(value, hints[name], name))
        for name in ("out", "data_root"):
            value = getattr(self, name)
            if not isinstance(value, str | Path | None) or (value is None and name == "out"):
                raise InputError(f"{name} is {value!r}; expected the path of a folder.")
            object.__setattr__(self, name, None if value is None else Path(value))
        if self.max_seconds is not None:
            require_at_least(self.max_seconds, 0, "max_seconds")
        require_at_least(self.checkpoint_seconds, 0, "checkpoint_seconds")
        if self.memory is not None:
            require_at_least(self.memory, 1, "memory")
        require_at_least(self.sharing, 1, "sharing")


@dataclass(frozen=True)
class Result:
    """One run's outcome, as `--json` prints it."""

    run: str
    method: str
    seed: int
    test_acc: float | None
    """None while the run is unfinished."""
    seconds: float
    """Training time; a fleet's is shared equally among its models."""
    status: Literal["done", "unfinished"]
    epochs: int
    """Epochs done."""
    arch: str
    data: str
    path: str
    test_loss: float | None = None
    """In nats a token, of networks that predict at every token."""

    def to_json(self) -> dict[str, Any]:
        """Without `test_loss` where there is none."""
        return {key: value for key, value in asdict(self).items() if key != "test_loss" or value is not None}


class ProgressListener:
    """Progress callbacks; no-ops by default, except that a warning is a Python warning."""

    def planned(self, groups: Sequence[FleetGroup], steps: int) -> None:
        """The plan is made; `steps` remain over all groups."""

    def started(self, group: FleetGroup) -> None: ...

    def stepped(self, steps: int) -> None: ...

    def backed_off(self, group: FleetGroup, parts: Sequence[FleetGroup], steps: int) -> None:
        """The group did not fit into the memory, and its parts are trained instead, which takes `steps` more steps."""

    def resumed(self, group: FleetGroup, epoch: int) -> None: ...

    def job_ended(self, name: str, done: int, total: int) -> None:
        """A job that a user's own function trains is finished; `done` of those that were left are."""

    def job_epoch(self, name: str, epochs: int, total: int) -> None:
        """A job that a user's own function trains has done `epochs` of its `total` epochs."""

    def skipped(self, names: Sequence[str]) -> None: ...

    def measuring(self, name: str, done: int, total: int) -> None:
        """The run `name` is measured next; `done` of `total` runs are measured."""

    def noted(self, message: str) -> None:
        """What is done next, and why."""

    def warned(self, message: str) -> None:
        """Something the user should know, such as that a file could not be checked."""
        warnings.warn(message, stacklevel=2)


class EpochObserver(Protocol):
    """Callbacks that measure models while they train."""

    def before_training(
        self, driver: Driver, members: Sequence[store.Run], data: Dataset, device: torch.device
    ) -> None:
        """Called before the first step of these models; not called for resumed runs."""

    def after_epoch(
        self, driver: Driver, members: Sequence[store.Run], data: Dataset, device: torch.device
    ) -> list[dict[str, Any]]:
        """Returns, for each model, what is added to its row of the training log."""

    def after_training(self, members: Sequence[store.Run], data: Dataset) -> None:
        """Called when these runs are finished."""


def train_resolved(
    resolved_runs: Sequence[ResolvedRun],
    options: TrainOptions,
    listener: ProgressListener,
    observer: EpochObserver | None = None,
) -> list[Result]:
    """Train the runs and return their results in the order given."""
    deadline = Deadline(options.max_seconds)
    refuse_duplicates(resolved_runs)
    runs = _existing(resolved_runs, options)
    finished = [resolved for resolved in resolved_runs if (run := runs.get(resolved.name)) and run.is_done]
    if finished:
        listener.skipped([resolved.name for resolved in finished])
    drop_leftovers_of_finished([runs[resolved.name] for resolved in finished], options.out)
    todo = [resolved for resolved in resolved_runs if resolved not in finished]
    if todo:
        _train_all(todo, runs, options, listener, observer, deadline)
    return [result_of(resolved, options.out) for resolved in resolved_runs]


def drop_leftovers_of_finished(runs: Sequence[store.Run], out: Path) -> None:
    """Remove what a kill after the last file of these finished runs was written has left: checkpoints, plans."""
    for run in runs:
        run.drop_checkpoints()
    forget(out, {run.name for run in runs})


def plan_unfinished(resolved_runs: Sequence[ResolvedRun], options: TrainOptions) -> list[FleetGroup]:
    """The fleets of the runs that are not finished; a run that was planned earlier stays in its fleet. Nothing is
    written."""
    runs = _existing(resolved_runs, options)
    todo = [resolved for resolved in resolved_runs if resolved.name not in runs or not runs[resolved.name].is_done]
    return plan_runs(todo, options, runs, read_plan(options.out))


def plan_runs(
    resolved_runs: Sequence[ResolvedRun],
    options: TrainOptions,
    runs: Mapping[str, store.Run] = _NO_RUNS,
    stored: Sequence[PlannedGroup] = (),
) -> list[FleetGroup]:
    """The fleets for these runs on the chosen device: as in the `stored` plan, and new ones for the other runs; those
    in `runs` resume from their last checkpoint.

    New fleets depend on counted work and on the size of the memory, not on timings or load: training in another fleet
    gives other bits.
    """
    device = choose_device(options.device)
    budget = memory_budget(device) // options.sharing
    memory = budget if options.memory is None else min(budget, options.memory)
    groups = _stored_groups(stored, resolved_runs, options, device)
    planned = {resolved.name for group in groups for resolved in group.resolved_runs}
    others = [resolved for resolved in resolved_runs if resolved.name not in planned]
    new = plan_fleets(others, _earlier_fleets(others, runs), options.driver, device, memory, predict=options.predict)
    groups += [replace(group, is_settled=any(each.name in runs for each in group.resolved_runs)) for group in new]
    order = {resolved.name: index for index, resolved in enumerate(resolved_runs)}
    groups.sort(key=lambda group: order[group.resolved_runs[0].name])
    return [_resumed(group, runs) for group in groups]


def _stored_groups(
    stored: Sequence[PlannedGroup], resolved_runs: Sequence[ResolvedRun], options: TrainOptions, device: torch.device
) -> list[FleetGroup]:
    """The stored groups, with those of their runs that are asked for. Left out are groups that an option excludes:
    another driver, or a memory limit they do not fit into."""
    by_name = {resolved.name: resolved for resolved in resolved_runs}
    asked = [planned.without(set(planned.names) - by_name.keys()) for planned in stored]
    planned = [
        (each.driver, [[by_name[name] for name in fleet] for fleet in each.fleets])
        for each in asked
        if each.fleets and options.driver in ("auto", each.driver)
    ]
    groups = settled_groups(planned, device, predict=options.predict)
    limit = math.inf if options.memory is None else options.memory
    return [group for group in groups if len(group.resolved_runs) == 1 or group.memory <= limit]


def _resumed(group: FleetGroup, runs: Mapping[str, store.Run]) -> FleetGroup:
    return group.resumed_from(common_epoch([runs.get(resolved.name) for resolved in group.resolved_runs]))


def choose_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda was asked for, but torch sees no CUDA GPU here. Use --device cpu.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def memory_budget(device: torch.device) -> int:
    """Bytes that fleets may use: a share of the device's whole memory; what is free depends on the load.

    If that much is not free, a fleet that runs out of memory is halved.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory * GPU_MEMORY_SHARE)
    with suppress(AttributeError, ValueError, OSError):  # Not every system says how much memory it has.
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * CPU_MEMORY_SHARE)
    return 2 << 30


def refuse_duplicates(resolved_runs: Sequence[ResolvedRun]) -> None:
    """Refuse two equal runs: they would share one folder."""
    seen: set[str] = set()
    for resolved in resolved_runs:
        if resolved.name in seen:
            raise InputError(
                f"The method '{resolved.method}' with seed {resolved.config.seed} is asked for twice. Ask once."
            )
        seen.add(resolved.name)


def _existing(resolved_runs: Sequence[ResolvedRun], options: TrainOptions) -> dict[str, store.Run]:
    """The runs whose folders exist, opened and checked before anything is trained."""
    found = {}
    for resolved in resolved_runs:
        path = options.out / resolved.name
        with friendly_os_errors(path, "open"):
            if not path.exists():
                if options.resume:
                    refuse_changed_source(options.out, resolved)
                continue
        if not options.resume:
            raise InputError(f"{path} exists already. Add --resume to go on with it, or choose another --out.")
        run = store.open_run(path)
        check_record(run, resolved)
        found[resolved.name] = run
    return found


def _train_all(
    todo: Sequence[ResolvedRun],
    runs: dict[str, store.Run],
    options: TrainOptions,
    listener: ProgressListener,
    observer: EpochObserver | None,
    deadline: Deadline,
) -> None:
    # Data comes first: where it is missing or damaged, nothing has been created yet.
    sources = {resolved.source for resolved in todo}
    data: dict[DataSource, Dataset] = {source: source.load(options.data_root) for source in sources}
    begun = [(runs[resolved.name], resolved) for resolved in todo if resolved.name in runs]
    for run, resolved in begun:
        check_data(run, data[resolved.source])
        for checkpoint in run.checkpoints():
            check_checkpoint(run, checkpoint, resolved)
    groups = plan_runs(todo, options, runs, read_plan(options.out))
    if options.driver != "single":
        for net in dict.fromkeys(resolved.net for resolved in todo if resolved.net.alone):
            listener.warned(f"The models of {net.found[0].partition(':')[0]} are trained one by one: {net.alone}.")
    with friendly_os_errors(options.out, "create"):
        options.out.mkdir(parents=True, exist_ok=True)
    store_plan(options.out, groups)
    listener.planned(groups, sum(group.steps_left for group in groups))
    waiting = deque(groups)
    while waiting:
        if deadline.is_past:
            return
        group = waiting.popleft()
        listener.started(group)
        if group.done:
            listener.resumed(group, group.done)
        source = data[group.resolved_runs[0].source]
        if _fits(group, partial(_train_group, group, runs, source, options, listener, observer, deadline)):
            forget(options.out, {each.name for each in group.resolved_runs if runs[each.name].is_done})
            continue
        # Its models resume from their last checkpoint, in smaller fleets.
        parts = [_resumed(part, runs) for part in halves(group)]
        store_plan(options.out, parts)
        listener.backed_off(group, parts, sum(part.steps_left for part in parts) - group.steps_left)
        waiting.extendleft(reversed(parts))


def _fits(group: FleetGroup, work: Callable[[], None]) -> bool:
    """Call `work`; False if the memory was not enough for all models of the group together."""
    try:
        with suitable_threads(group.flops):
            work()
        return True
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if len(group.resolved_runs) == 1:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise WalkbackError(
                f"Out of memory with one model alone, '{group.resolved_runs[0].name}' ({reason}). "
                "Use a smaller batch or network, or a machine with more memory; --resume goes on."
            ) from error
    # The error's traceback held the tensors; after the except block they can be freed.
    gc.collect()
    torch.cuda.empty_cache()
    return False


def _earlier_fleets(todo: Sequence[ResolvedRun], runs: Mapping[str, store.Run]) -> list[tuple[str, ...]]:
    """For each run, the names of the runs it was trained with so far.

    A run that was killed before its first checkpoint does not know; then another member of its fleet does.
    """
    own = {resolved.name: runs[resolved.name].fleet_names() if resolved.name in runs else () for resolved in todo}
    by_member = {name: names for names in own.values() for name in names}
    return [own[resolved.name] or by_member.get(resolved.name, ()) for resolved in todo]


def _train_group(
    group: FleetGroup,
    runs: dict[str, store.Run],
    data: Dataset,
    options: TrainOptions,
    listener: ProgressListener,
    observer: EpochObserver | None,
    deadline: Deadline,
) -> None:
    device = choose_device(options.device)
    for resolved in group.resolved_runs:
        if resolved.name not in runs:
            runs[resolved.name] = store.create_run(
                options.out / resolved.name, _record(resolved, data, device, options)
            )
    members = [runs[resolved.name] for resolved in group.resolved_runs]
    train_group(group, members, data, device, options, listener, observer, deadline)


def _record(resolved: ResolvedRun, data: Dataset, device: torch.device, options: TrainOptions) -> dict[str, Any]:
    config = resolved.config
    return {
        "run": resolved.name,
        "method": resolved.method,
        "seed": config.seed,
        "config": config.to_json(),
        "digest": resolved.digest,
        "rule_has_state": bool(resolved.state()),
        "credit_site": resolved.credit_site,
        "data": {"name": config.data.name, "digest": data.digest},
        "dtype": config.dtype,
        **provenance(device, options.command),
    }


def result_of(resolved: ResolvedRun, out: Path) -> Result:
    """The result that is stored in the run's folder below `out`."""
    path = out / resolved.name
    # A run that was not begun before the time was up has no folder yet.
    run = store.open_run(path, without=(store.MODEL, store.RULE)) if path.exists() else None
    record = run.record if run and run.is_done else None
    return Result(
        run=resolved.name,
        method=resolved.method,
        seed=resolved.config.seed,
        test_acc=record["result"]["test_acc"] if record else None,
        seconds=record["timings"]["seconds"] if record else 0.0,
        status="done" if record else "unfinished",
        epochs=resolved.config.epochs if record else max(run.checkpoint_epochs()) if run else 0,
        arch=resolved.config.arch.name,
        data=resolved.config.data.name,
        path=str(path),
        test_loss=record["result"].get("test_loss") if record else None,
    )
