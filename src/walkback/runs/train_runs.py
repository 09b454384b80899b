"""Training a grid into run directories: plan, train, log, checkpoint, finish; and go on after a kill."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError, WalkbackError
from walkback.core.files import friendly_os_errors
from walkback.data.dataset import Dataset, DataSource
from walkback.runs import store
from walkback.runs.deadline import Deadline
from walkback.runs.provenance import provenance
from walkback.runs.train_group import common_epoch, train_group
from walkback.training.driver import Driver
from walkback.training.out_of_memory import is_out_of_memory
from walkback.training.planning.fleet_plan import FleetGroup, halves, suitable_threads
from walkback.training.planning.plan_fleets import plan_fleets
from walkback.training.resolved_run import ResolvedRun, resolve

_NO_RUNS: Mapping[str, store.Run] = {}


@dataclass(frozen=True)
class TrainOptions:
    """How a grid is trained; none of it changes what a run computes."""

    out: Path
    resume: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    driver: Literal["auto", "single", "fleet"] = "auto"
    data_root: Path | None = None
    max_seconds: float | None = None
    """Stop at the first end of an epoch after this many seconds, or at once where none was begun."""
    checkpoint_seconds: float = 30.0
    """Save at the first epoch end after this many seconds."""
    memory: int | None = None
    """Plan fleets that fit into this many bytes, where more are free."""
    predict: bool = True
    """Time the device beforehand, so that the plan says what it will take."""
    command: tuple[str, ...] = ()


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class ProgressListener:
    """Hears how training goes; the default hears nothing."""

    def planned(self, groups: Sequence[FleetGroup], steps: int) -> None:
        """`steps` are those still to do, over all groups."""

    def started(self, group: FleetGroup) -> None: ...

    def stepped(self, steps: int) -> None: ...

    def backed_off(self, group: FleetGroup, parts: Sequence[FleetGroup], steps: int) -> None:
        """The group did not fit into the memory and its parts are tried instead; `steps` more than it had to do."""

    def resumed(self, group: FleetGroup, epoch: int) -> None: ...

    def skipped(self, names: Sequence[str]) -> None: ...

    def measuring(self, name: str, done: int, total: int) -> None:
        """The run `name` is about to be measured; `done` of `total` have been."""


class EpochObserver(Protocol):
    """Looks at models while they train."""

    def before_training(
        self, driver: Driver, members: Sequence[store.Run], data: Dataset, device: torch.device
    ) -> None:
        """These models are about to take their first step; of one that is gone on with it was said when it began."""

    def after_epoch(
        self, driver: Driver, members: Sequence[store.Run], data: Dataset, device: torch.device
    ) -> list[dict[str, Any]]:
        """What goes into each model's row of the log."""

    def after_training(self, members: Sequence[store.Run], data: Dataset) -> None:
        """These runs have just been finished."""


def train_configs(
    configs: Sequence[RunConfig],
    options: TrainOptions,
    listener: ProgressListener,
    own_data: DataSource | None = None,
    observer: EpochObserver | None = None,
) -> list[Result]:
    """Train every configuration and return their results in the order given."""
    deadline = Deadline(options.max_seconds)
    resolved_runs = [resolve(config, own_data) for config in configs]
    refuse_duplicates(resolved_runs)
    runs = _existing(resolved_runs, options)
    finished = [resolved for resolved in resolved_runs if (run := runs.get(resolved.name)) and run.is_done]
    if finished:
        listener.skipped([resolved.name for resolved in finished])
    for resolved in finished:
        runs[resolved.name].drop_checkpoints()  # Left by a kill after the last file was written.
    todo = [resolved for resolved in resolved_runs if resolved not in finished]
    if todo:
        _train_all(todo, runs, options, listener, observer, deadline)
    return [result_of(resolved, options.out) for resolved in resolved_runs]


def plan_unfinished(resolved_runs: Sequence[ResolvedRun], options: TrainOptions) -> list[FleetGroup]:
    """The fleets of those runs that are not finished, in the company they were begun in."""
    runs = _existing(resolved_runs, options)
    todo = [resolved for resolved in resolved_runs if resolved.name not in runs or not runs[resolved.name].is_done]
    return plan_runs(todo, options, runs)


def plan_runs(
    resolved_runs: Sequence[ResolvedRun], options: TrainOptions, runs: Mapping[str, store.Run] = _NO_RUNS
) -> list[FleetGroup]:
    """The fleets for these recipes on the chosen device; those of `runs` go on from their last checkpoint."""
    device = choose_device(options.device)
    free = free_memory(device)
    memory = free if options.memory is None else min(free, options.memory)
    fleets_of_runs = _companies(resolved_runs, runs)
    groups = plan_fleets(resolved_runs, fleets_of_runs, options.driver, device, memory, predict=options.predict)
    return [_begun(group, runs) for group in groups]


def _begun(group: FleetGroup, runs: Mapping[str, store.Run]) -> FleetGroup:
    return group.resumed_from(common_epoch([runs.get(resolved.name) for resolved in group.resolved_runs]))


def choose_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda was asked for, but torch sees no CUDA GPU here. Use --device cpu.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def free_memory(device: torch.device) -> int:
    """Bytes a fleet may use: half of what is free, since counting is not exact."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    with suppress(OSError), Path("/proc/meminfo").open() as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 // 2
    return 2 << 30


def refuse_duplicates(resolved_runs: Sequence[ResolvedRun]) -> None:
    """Two equal runs would share one folder."""
    seen: set[str] = set()
    for resolved in resolved_runs:
        if resolved.name in seen:
            raise InputError(
                f"The method '{resolved.method}' with seed {resolved.config.seed} is asked for twice. Ask once."
            )
        seen.add(resolved.name)


def _existing(resolved_runs: Sequence[ResolvedRun], options: TrainOptions) -> dict[str, store.Run]:
    """The runs that are there already, opened and checked before anything is trained."""
    found = {}
    for resolved in resolved_runs:
        path = options.out / resolved.name
        with friendly_os_errors(path, "open"):
            if not path.exists():
                continue
        if not options.resume:
            raise InputError(f"{path} exists already. Add --resume to go on with it, or choose another --out.")
        run = store.open_run(path)
        if run.record["digest"] != resolved.config.digest():
            raise store.damaged_run(path, "its configuration is not the one its name stands for")
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
    groups = plan_runs(todo, options, runs)
    with friendly_os_errors(options.out, "create"):
        options.out.mkdir(parents=True, exist_ok=True)
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
            continue
        # Its models go on from their last checkpoint, in smaller company.
        parts = [_begun(part, runs) for part in halves(group)]
        listener.backed_off(group, parts, sum(part.steps_left for part in parts) - group.steps_left)
        waiting.extendleft(reversed(parts))


def _fits(group: FleetGroup, work: Callable[[], None]) -> bool:
    """Do the work; False where the memory was not enough for all models of the group together."""
    try:
        with suitable_threads(group):
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
    # Only now, with the error gone, does nothing hold the tensors that were made.
    gc.collect()
    torch.cuda.empty_cache()
    return False


def _companies(todo: Sequence[ResolvedRun], runs: Mapping[str, store.Run]) -> list[tuple[str, ...]]:
    """The fleet each run belongs to; one killed before its first checkpoint is known to its companions only."""
    own = {resolved.name: runs[resolved.name].fleet_names() if resolved.name in runs else () for resolved in todo}
    told = {name: fleet_names for fleet_names in own.values() for name in fleet_names}
    return [own[resolved.name] or told.get(resolved.name, ()) for resolved in todo]


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
        "digest": config.digest(),
        "rule_has_state": bool(resolved.state()),
        "credit_site": resolved.shared_options.site,
        "data": {"name": config.data.name, "digest": data.digest},
        "dtype": config.dtype,
        **provenance(device, options.command),
    }


def result_of(resolved: ResolvedRun, out: Path) -> Result:
    """What the run's folder below `out` says of it."""
    path = out / resolved.name
    # A run whose turn did not come before the time was up has no folder yet.
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
    )
