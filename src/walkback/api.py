"""The Python surface: functions a user calls. The commands do the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from walkback.core.configuration import RunConfig, grid
from walkback.core.errors import InputError
from walkback.core.plugins import load_registered
from walkback.core.settings import Spec, parse_arch

if TYPE_CHECKING:
    from torch import nn

    from walkback.auditing.audit import Audit
    from walkback.auditing.collect import ReportTable
    from walkback.auditing.own_loop.job import Job, Trained
    from walkback.core.tuning import TuneOptions
    from walkback.data.tensors import Tensors
    from walkback.judge.options import JudgeOptions
    from walkback.judge.report import DiagnosticReport
    from walkback.judge.thresholds import DiagnosticThresholds
    from walkback.judge.verification import Verification
    from walkback.measure.subject import FrozenPass
    from walkback.report.study_report import StudyReport
    from walkback.runs.store import Run
    from walkback.runs.train_runs import ProgressListener, Result, TrainOptions
    from walkback.training.resolved_run import ResolvedRun

_Augment = Literal["auto", "none", "crop_flip", "crop_flip_black"]
_Precision = Literal["float32", "float64", "tf32"]
_Device = Literal["auto", "cpu", "cuda"]
_DriverName = Literal["auto", "single", "fleet"]
_ProtocolName = Literal["claims", "three", "four"]
_NullName = Literal["method_shell", "bp_shell"]
_OracleName = Literal["none", "exact", "all"]
_ExecutorName = Literal["local", "ray", "slurm"]
_EXECUTOR = ("executor", "jobs", "slurm")
_DEFAULTS = {"arch": "resmlp", "data": "prototypes"}
_Builder = Any
"""An nn.Module class, a function that builds a module, or a module."""


def train(
    methods: str | Sequence[str] = "bp",
    *,
    arch: str | _Builder = "resmlp",
    blocks: str | Sequence[str] | None = None,
    data: str | Tensors = "prototypes",
    seeds: int | Sequence[int] = 42,
    epochs: int = RunConfig.epochs,
    batch: int = RunConfig.batch,
    lr: float = RunConfig.lr,
    weight_decay: float = RunConfig.weight_decay,
    augment: _Augment = RunConfig.augment,
    dtype: _Precision = RunConfig.dtype,
    optimizer: str = str(RunConfig.optimizer),
    schedule: str = str(RunConfig.schedule),
    tune: str | Mapping[str, Any] | TuneOptions | None = None,
    out: str | Path = "runs",
    resume: bool = False,
    device: _Device = "auto",
    driver: _DriverName = "auto",
    data_root: str | Path | None = None,
    max_seconds: float | None = None,
    checkpoint_seconds: float = 30.0,
    memory: int | None = None,
    predict: bool = True,
    watch: int | None = None,
    listener: ProgressListener | None = None,
) -> list[Result]:
    """Train a grid of methods and seeds as one plan of fleets, each run into its own folder below `out`.

    A method is written as on the command line: `"dfa"`, `"dfa:scale=unit_error,site=input"`, `"fa:shell=method"`.
    `arch` is a network's name, or an nn.Module: its class, a function that builds it, or its name `"my_nets:ResNet14"`;
    `blocks` names its blocks (the path of their ModuleList, or a list of names) where they are not found.
    `data` is a data set's name or the result of `tensors`. `epochs` to `schedule` decide what a run computes, `out` to
    `predict` how it is trained (`RunConfig` and `TrainOptions` explain each). With `watch=k` the detectors (growth,
    deepest gradient, drift, every layer's norms and cosine) measure each network after every k-th epoch and write
    into its log; this changes nothing else. With `tune="lr=1e-4,3e-4,1e-3"` (or a dict with lr, seeds, held_out) each
    method gets its own learning rate, chosen on held-out training samples; `tuning.json` below `out` has all results.
    Returns one result per run, methods outermost.
    """
    from walkback.auditing.epoch_monitor import EpochMonitor
    from walkback.core.tuning import TuneOptions
    from walkback.runs.train_runs import ProgressListener
    from walkback.runs.tuning import train_tuned

    options = _options(
        out, data_root,
        resume=resume, device=device, driver=driver, max_seconds=max_seconds, checkpoint_seconds=checkpoint_seconds,
        memory=memory, predict=predict,
    )  # fmt: skip
    observer = None if watch is None else EpochMonitor(every=watch)
    resolved_runs = _resolved(
        methods, (arch, blocks), data, seeds,
        epochs=epochs, batch=batch, lr=lr, weight_decay=weight_decay, augment=augment, dtype=dtype,
        optimizer=optimizer, schedule=schedule,
    )  # fmt: skip
    asked = TuneOptions.of(tune)
    return train_tuned(resolved_runs, asked, options, listener or ProgressListener(), observer)[0]


def audit(
    train: Callable[[Job], Trained] | str | Sequence[str] | None = None,
    /,
    *,
    methods: str | Sequence[str] | None = None,
    arch: str | _Builder = "resmlp",
    data: str | Tensors = "prototypes",
    seeds: int | Sequence[int] = 42,
    epochs: int = RunConfig.epochs,
    batch: int = RunConfig.batch,
    lr: float = RunConfig.lr,
    weight_decay: float = RunConfig.weight_decay,
    augment: _Augment = RunConfig.augment,
    dtype: _Precision = RunConfig.dtype,
    optimizer: str = str(RunConfig.optimizer),
    schedule: str = str(RunConfig.schedule),
    tune: str | Mapping[str, Any] | TuneOptions | None = None,
    thresholds: DiagnosticThresholds | None = None,
    protocol: _ProtocolName = "claims",
    null: _NullName = "method_shell",
    claims: Sequence[Literal["alignment", "depth"]] = ("alignment", "depth"),
    oracle: _OracleName | bool | None = None,
    out: str | Path = "runs",
    resume: bool = False,
    device: _Device = "auto",
    driver: _DriverName = "auto",
    data_root: str | Path | None = None,
    max_seconds: float | None = None,
    checkpoint_seconds: float = 30.0,
    memory: int | None = None,
    predict: bool = True,
    listener: ProgressListener | None = None,
    eval_batches: Iterable[Any] | Callable[[], Iterable[Any]] | None = None,
    build: Callable[..., nn.Module] | None = None,
    credit: Any = None,
    fresh: Any = None,
    update: Any = None,
    reference: Any = None,
    exact: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    null_space: Literal["features", "all"] | None = None,
    initial: nn.Module | Mapping[str, Any] | None = None,
    train_batches: Iterable[Any] | None = None,
    blocks: Any = None,
    pool: Literal["auto", "cls", "mean", "all"] | None = None,
    step_fn: Callable[[nn.Module, Any], Any] | None = None,
    distinct: bool = True,
    describe: Mapping[str, str] | None = None,
    force: bool = False,
    executor: _ExecutorName | None = None,
    jobs: int | None = None,
    slurm: Mapping[str, Any] | None = None,
) -> Audit:
    """Train methods with their frozen baselines and backprop, measure them, and judge them together.

    The first argument is your own training function (see below), or the methods of walkback to train (also `methods=`).
    For the latter it takes what `train` takes (`blocks` too), and how to judge: `thresholds`, the deciding edition
    `protocol`, the deciding frozen baseline `null`, and what is claimed: with `claims=["depth"]` a measured alignment
    is shown and decides nothing. `oracle` says which oracle controls are trained too: the method with exact credit
    (`exact`), also with exact credit at the input and with the exact direction (`all`), or none. `tune` chooses the
    learning rate of every method, baseline and oracle, as in `train`. The runs, a card for each and an overview of all
    (`audit.html`) are below `out`.

    Your own function gets a `Job` (method, seed, frozen, credit) and returns `Trained`; it is called for each method
    and seed, for their frozen baselines, for backprop (`"bp"`) and its frozen baseline, and with `oracle=True` with
    exact credit. `build` builds the untrained model, into which stored weights are loaded; `eval_batches` are what the
    models are measured on. `credit` to `distinct` are those of `diagnose`; `credit`, `fresh`, `update` and `reference`
    may be dicts by method, and get the stored feedback as one more argument if they take it. `describe` fills in what
    only you know (`data`, `recipe`, `arch`). Jobs that other source files have trained are refused, unless `force` is
    given: then the cards name the files. `executor` trains jobs in processes (`local`), on Ray or on Slurm, `jobs`
    at a time.
    """
    from walkback.auditing.audit import run_audit
    from walkback.core.tuning import TuneOptions
    from walkback.judge.options import JudgeOptions
    from walkback.runs.train_runs import ProgressListener

    own = {
        "eval_batches": eval_batches, "build": build, "credit": credit, "fresh": fresh, "update": update,
        "reference": reference, "exact": exact, "labels": labels, "null_space": null_space, "initial": initial,
        "train_batches": train_batches, "blocks": blocks, "pool": pool, "step_fn": step_fn,
        "distinct": None if distinct else False, "describe": describe, "force": force or None, "executor": executor,
        "jobs": jobs, "slurm": slurm,
    }  # fmt: skip
    judge_options = JudgeOptions(thresholds, protocol, null, _tuple(claims))
    options = _options(
        out, data_root,
        resume=resume, device=device, driver=driver, max_seconds=max_seconds, checkpoint_seconds=checkpoint_seconds,
        memory=memory, predict=predict,
    )  # fmt: skip
    settings: dict[str, Any] = {
        "epochs": epochs, "batch": batch, "lr": lr, "weight_decay": weight_decay, "augment": augment, "dtype": dtype,
        "optimizer": optimizer, "schedule": schedule,
    }  # fmt: skip
    if callable(train):
        built_in = {"arch": arch, "data": data, "tune": tune, **settings}
        defaults = {name: getattr(RunConfig, name, _DEFAULTS.get(name)) for name in built_in}
        changed = [name for name, value in built_in.items() if str(value) != str(defaults[name])]
        if changed:
            raise InputError(f"{changed[0]}= is for walkback's own methods; your training function decides it.")
        return _audit_own_loop(train, methods, seeds, oracle, own, options, judge_options, listener)
    given = [name for name, value in own.items() if value is not None and name != "blocks"]
    if given:
        raise InputError(f"{given[0]}= goes with a training function of yours, as the first argument of wb.audit.")
    if train is not None and methods is not None:
        raise InputError(f"wb.audit got the methods {train!r} and methods={methods!r}. Give them once.")
    chosen = train if train is not None else methods if methods is not None else ("bp", "fa", "dfa")
    resolved_runs = _resolved(chosen, (arch, blocks), data, seeds, **settings)
    kind: _OracleName = "exact" if oracle is None or oracle is True else "none" if oracle is False else oracle
    asked = TuneOptions.of(tune)
    return run_audit(resolved_runs, options, judge_options, listener or ProgressListener(), kind, asked)


def _audit_own_loop(
    train: Callable[[Job], Trained],
    methods: str | Sequence[str] | None,
    seeds: int | Sequence[int],
    oracle: Any,
    own: dict[str, Any],
    options: TrainOptions,
    judge_options: JudgeOptions,
    listener: ProgressListener | None,
) -> Audit:
    from walkback.auditing.own_loop.audit_own_loop import OwnLoop, RunJobs, audit_own_loop, in_process
    from walkback.runs.train_runs import ProgressListener

    if methods is None:
        raise InputError("methods= is missing; expected names your training function knows, such as ['mine', 'bp'].")
    if oracle not in (None, True, False, "exact", "none"):
        raise InputError(f"oracle is {oracle!r}; expected True or False: whether to train with exact credit too.")
    loop = OwnLoop(
        train=train,
        methods=[methods] if isinstance(methods, str) else list(methods),
        seeds=[seeds] if isinstance(seeds, int) else list(seeds),
        oracle=oracle in (True, "exact"),
        build=own.pop("build"),
        eval_batches=own.pop("eval_batches"),
        step_fn=own.pop("step_fn"),
        describe=own.pop("describe"),
        force=bool(own.pop("force")),
        measuring={name: value for name, value in own.items() if value is not None and name not in _EXECUTOR},
    )
    run_jobs: RunJobs = in_process
    if own["executor"] is not None:
        from walkback.sweeping.own_loop import on_executor

        run_jobs = on_executor(own["executor"], options, own["jobs"], own["slurm"] or {})
    elif own["jobs"] is not None or own["slurm"] is not None:
        raise InputError("jobs= and slurm= go with executor=: 'local', 'ray' or 'slurm'.")
    return audit_own_loop(loop, options, judge_options, listener or ProgressListener(), run_jobs)


def study(
    name: str | Sequence[str],
    *,
    scale: Literal["smoke", "paper"] = "smoke",
    out: str | Path = "studies",
    render: bool = False,
    device: _Device = "auto",
    data_root: str | Path | None = None,
    max_seconds: float | None = None,
    checkpoint_seconds: float = 30.0,
    memory: int | None = None,
    listener: ProgressListener | None = None,
) -> tuple[StudyReport, ...]:
    """Run one study or several (`"all"` for all) and write their pages below `out`.

    Returns their reports: findings, tables and figures, as the pages show them. `render` makes them again from stored
    results alone. If the time is up before the end, no report is returned, and the same call continues.
    """
    options = _options(
        out, data_root,
        device=device, max_seconds=max_seconds, checkpoint_seconds=checkpoint_seconds, memory=memory,
    )  # fmt: skip
    run_named_studies = load_registered("walkback.functions", "function", "study")
    names = [name] if isinstance(name, str) else name
    reports: tuple[StudyReport, ...] = run_named_studies(names, scale, options, listener, render=render)
    return reports


def _resolved(
    methods: str | Sequence[str],
    arch: tuple[Any, Any],
    data: str | Tensors,
    seeds: int | Sequence[int],
    **settings: Any,
) -> list[ResolvedRun]:
    """The grid's runs; the user's own tensors are named `tensors` in their configurations. `arch` is the network with
    the names of its blocks."""
    from walkback.nets.module_source import spec_of_object, with_blocks
    from walkback.training.resolved_run import resolve

    given, blocks = arch
    network = parse_arch(given) if isinstance(given, str | Spec) else spec_of_object(given)
    network = network if blocks is None else with_blocks(network, blocks)
    name, own_data = (data, None) if isinstance(data, str) else ("tensors", data)
    configs = grid(methods, arch=network, data=name, seeds=seeds, **settings)
    return [resolve(config, own_data) for config in configs]


def _tuple(claims: Any) -> Any:
    """A list of claims as a tuple; anything else is refused by `JudgeOptions`."""
    return tuple(claims) if isinstance(claims, list | tuple) else claims


def _options(out: str | Path, data_root: str | Path | None, **settings: Any) -> TrainOptions:
    from walkback.runs.train_runs import TrainOptions

    # The class itself refuses what is not a path.
    return TrainOptions(out=out, data_root=data_root, **settings)  # type: ignore[arg-type]


def tensors(
    train_x: Any, train_y: Any, test_x: Any, test_y: Any, *, mean: Sequence[float] = (), std: Sequence[float] = ()
) -> Tensors:
    """Your own arrays or tensors as a data set for `train`.

    Inputs are uint8 images [n, channels, height, width], with `mean` and `std` per channel, or floats of any shape
    [n, ...], which are used unchanged. Labels are whole numbers from 0. For a language model inputs and labels are both
    whole numbers [n, tokens].
    """
    from walkback.data.tensors import from_tensors

    return from_tensors(train_x, train_y, test_x, test_y, mean=mean, std=std)


@overload
def diagnose(model: nn.Module, eval_batches: Iterable[Any], *accuracies: Any, **options: Any) -> DiagnosticReport: ...
@overload
def diagnose(
    model: Sequence[nn.Module], eval_batches: Iterable[Any], *accuracies: Any, **options: Any
) -> ReportTable: ...
def diagnose(
    model: nn.Module | Sequence[nn.Module],
    eval_batches: Iterable[Any],
    headline_acc: float | Sequence[float] | None = None,
    frozen_baseline_acc: float | Sequence[float] | Mapping[str, Any] | None = None,
    *,
    bp_acc: float | Sequence[float] | None = None,
    headline_loss: float | Sequence[float] | None = None,
    frozen_baseline_loss: float | Sequence[float] | Mapping[str, Any] | None = None,
    bp_loss: float | Sequence[float] | None = None,
    test_samples: int | None = None,
    null: _NullName = "method_shell",
    method_name: str = "",
    notes: str = "",
    credit: Callable[[FrozenPass], Sequence[Any]] | Literal["auto", "backward"] | None = "auto",
    reference: Callable[[FrozenPass], Sequence[Any]] | None = None,
    fresh: Callable[[Any], Callable[[FrozenPass], Sequence[Any]]] | None = None,
    update: Callable[[nn.Module, Any], Any] | None = None,
    exact: Sequence[int] = (),
    labels: Sequence[str] | None = None,
    null_space: Literal["features", "all"] | None = None,
    initial: nn.Module | Mapping[str, Any] | None = None,
    train_batches: Iterable[Any] | None = None,
    blocks: Any = "auto",
    pool: Literal["auto", "cls", "mean", "all"] = "auto",
    step_fn: Callable[[nn.Module, Any], Any] | None = None,
    distinct: bool = True,
    thresholds: DiagnosticThresholds | None = None,
    protocol: _ProtocolName = "claims",
    claims: Sequence[Literal["alignment", "depth"]] = ("alignment", "depth"),
) -> DiagnosticReport | ReportTable:
    """Measure a trained model and judge what may be claimed of it. Nothing is trained; the model is left unchanged.

    A list of models is one method's seeds: then the accuracies are lists in the same order, `credit`, `fresh`,
    `update`, `reference` and `initial` may be lists, and the result is a `ReportTable` with one row, the worst of
    the seeds.

    `eval_batches` are (x, y) pairs, at least 8 groups of 128 samples, cut as you like. Accuracies are fractions, one
    number or one per seed; `frozen_baseline_acc` may be a dict by null (`method_shell`, `bp_shell`). For a
    language model give test losses in nats a token, `headline_loss` and so on: they then decide. `test_samples` is the
    size of the test set they were measured on: with it one seed has an interval. `blocks` names the residual blocks
    if they are not found; `step_fn(model, batch)` gives per-sample losses, or those of tokens [samples, tokens], if the
    model is no plain classifier. `distinct=False` allows repeated samples, such as windows drawn twice. With
    `claims=["depth"]` a measured alignment is shown and decides nothing.

    The reference is the derivative of the forward pass, whatever the model's backward pass returns; `reference` maps a
    frozen pass to other reference gradients. `credit` maps a frozen pass (states, reference, error, ...) to credits
    a_0..a_L; with "auto" the credit is what the model's own backward pass returns, if that is not the derivative.
    `exact` lists the states whose credit is the gradient by construction (or `labels` says for each state: exact,
    asymptotic, fitted, signs or none). `fresh(generator)` returns a credit function with freshly drawn feedback, for
    the null; `null_space` says whether the feedback mixes the features of each token or position, or the whole state.
    `update(model, batch)` runs the backward passes of one training step and leaves gradients in `.grad` (or returns
    them by name); without it the model's own backward pass is used. `initial` is the model before training, or its
    state_dict: each block is reset to it in turn; `train_batches` are training samples for linear probes of the states.
    """
    from walkback.auditing.diagnose_model import diagnose_model, diagnose_models, measure_options
    from walkback.judge.options import JudgeOptions

    accuracies = {
        "headline_acc": headline_acc,
        "frozen_baseline_acc": frozen_baseline_acc,
        "bp_acc": bp_acc,
        "headline_loss": headline_loss,
        "frozen_baseline_loss": frozen_baseline_loss,
        "bp_loss": bp_loss,
        "test_samples": test_samples,
    }
    judge_options = JudgeOptions(thresholds, protocol, null, _tuple(claims))
    given = {
        "credit": credit, "reference": reference, "fresh": fresh, "update": update, "exact": exact, "labels": labels,
        "null_space": null_space, "pool": pool, "initial": initial, "train_batches": train_batches,
    }  # fmt: skip
    what = {"method_name": method_name, "notes": notes, "blocks": blocks, "step_fn": step_fn, "distinct": distinct}
    if isinstance(model, list | tuple):
        from walkback.auditing.collect import collect_reports

        return collect_reports(diagnose_models(model, eval_batches, accuracies, judge_options, given, **what))
    return diagnose_model(model, eval_batches, accuracies, judge_options, options=measure_options(**given), **what)  # type: ignore[arg-type]


def collect(reports: Iterable[DiagnosticReport]) -> ReportTable:
    """Judge reports of `diagnose` together: one row per method over its seeds, worst of the seeds, Holm over methods.

    Reports with the same `method_name`, network and data are one method's seeds, in the order given.
    """
    from walkback.auditing.collect import collect_reports

    return collect_reports(reports)


def update_alignment(
    model: nn.Module,
    batch: tuple[Any, Any],
    update: Callable[[nn.Module, Any], Any] | None = None,
    *,
    step_fn: Callable[[nn.Module, Any], Any] | None = None,
) -> dict[str, float]:
    """For each parameter, the cosine of its gradient in training with the gradient of the mean loss of one batch.

    Works for any model, also where no blocks are found. `update(model, batch)` runs the backward passes of one training
    step and leaves gradients in `.grad` (or returns them by name), without the optimiser's step; without it the model's
    own backward pass is used. NaN where a gradient is zero or missing. The model is left unchanged.
    """
    from walkback.auditing.diagnose_model import measure_update_alignment

    return measure_update_alignment(model, batch, update, step_fn)


def verify(
    card: str | Path,
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    device: _Device = "cpu",
    data: Tensors | None = None,
) -> Verification:
    """Confirm or refute the audit card of a stored run by measuring the run again. Nothing is written.

    `card` is a report.json or a folder with one, `run` the run's folder. `data` is the data set of a
    run that was trained on your own tensors.
    """
    from walkback.auditing.verify import verify_card
    from walkback.runs.train_runs import choose_device

    root = None if data_root is None else Path(data_root)
    return verify_card(card, run, data_root=root, device=choose_device(device), own_data=data)


def load(path: str | Path) -> Run:
    """Open a finished run: `.record`, `.log()`, `.params()` and `.rule_state()` (numpy arrays by leaf name)."""
    from walkback.runs.store import open_run

    return open_run(Path(path))
