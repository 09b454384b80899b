"""The Python surface: the same functions the commands call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from walkback.core.configuration import RunConfig, grid
from walkback.core.errors import unknown
from walkback.core.plugins import load_registered

if TYPE_CHECKING:
    from torch import nn

    from walkback.auditing.audit import Audit
    from walkback.data.tensors import Tensors
    from walkback.judge.report import DiagnosticReport
    from walkback.judge.thresholds import DiagnosticThresholds
    from walkback.measure.subject import FrozenPass
    from walkback.report.study_report import StudyReport
    from walkback.runs.store import Run
    from walkback.runs.train_runs import ProgressListener, Result, TrainOptions


def train(
    methods: str | Sequence[str] = "bp",
    *,
    arch: str = "resmlp",
    data: str | Tensors = "prototypes",
    seeds: int | Sequence[int] = 42,
    watch: int | None = None,
    listener: ProgressListener | None = None,
    **settings: Any,
) -> list[Result]:
    """Train a grid of methods and seeds as one plan of fleets, each run into its own folder below `out`.

    A method is written as on the command line: `"dfa"`, `"dfa:scale=unit_error,site=input"`, `"fa:shell=method"`.
    `data` is a data set's name or the result of `tensors`. Other settings are fields of `RunConfig` (epochs, batch, lr,
    ...) and of `Options` (out="runs", resume, device, driver, data_root, max_seconds, ...). With `watch=k` the
    detectors (growth, deepest gradient, direction, every layer's norms and cosine) look at each network after every
    k-th epoch and write what they see into its log; this changes nothing else.
    Returns one result per run, methods outermost.
    """
    from walkback.auditing.epoch_monitor import EpochMonitor
    from walkback.runs import train_runs

    configs, options, own_data = _asked(methods, arch, data, seeds, settings)
    observer = None if watch is None else EpochMonitor(every=watch)
    return train_runs.train_configs(configs, options, listener or train_runs.ProgressListener(), own_data, observer)


def audit(
    methods: str | Sequence[str] = ("bp", "fa", "dfa"),
    *,
    arch: str = "resmlp",
    data: str | Tensors = "prototypes",
    seeds: int | Sequence[int] = 42,
    thresholds: DiagnosticThresholds | None = None,
    protocol: Literal["three", "four"] = "three",
    null: Literal["method_shell", "bp_shell"] = "method_shell",
    listener: ProgressListener | None = None,
    **settings: Any,
) -> Audit:
    """Train methods with the frozen shells and backprop runs they are held against, measure and judge them together.

    Takes what `train` takes. The runs, a card for each and an overview of all (`audit.html`) lie below `out`.
    """
    from walkback.auditing.audit import run_audit as carry_out
    from walkback.judge.options import JudgeOptions
    from walkback.runs import train_runs

    configs, options, own_data = _asked(methods, arch, data, seeds, settings)
    return carry_out(
        configs, options, JudgeOptions(thresholds, protocol, null), listener or train_runs.ProgressListener(), own_data
    )


def study(
    name: str | Sequence[str],
    *,
    scale: Literal["smoke", "paper"] = "smoke",
    out: str | Path = "studies",
    render: bool = False,
    listener: ProgressListener | None = None,
    **settings: Any,
) -> tuple[StudyReport, ...]:
    """Carry out one study or several (`"all"` for all there are) and write their pages below `out`.

    Returns their stories: findings, tables and figures, as the pages show them. `render` tells them again from what is
    stored. Other settings are fields of `Options` (device, data_root, max_seconds, ...); where the time was up before
    the end there are no stories yet, and the same call goes on.
    """
    from walkback.runs.train_runs import TrainOptions

    options = TrainOptions(**_how({**settings, "out": out}))
    found: tuple[StudyReport, ...] = load_registered("walkback.functions", "function", "study")(
        [name] if isinstance(name, str) else name, scale, options, listener, render=render
    )
    return found


def _asked(
    methods: str | Sequence[str],
    arch: str,
    data: str | Tensors,
    seeds: int | Sequence[int],
    settings: Mapping[str, Any],
) -> tuple[list[RunConfig], TrainOptions, Tensors | None]:
    """What a grid's keywords ask for: the configurations, how to train them, and data that were handed over."""
    from walkback.runs.train_runs import TrainOptions

    names = {field.name for field in fields(TrainOptions)}
    how = _how({name: value for name, value in settings.items() if name in names})
    name, own_data = (data, None) if isinstance(data, str) else ("tensors", data)
    own = {name: value for name, value in settings.items() if name not in names}
    return grid(methods, arch=arch, data=name, seeds=seeds, **own), TrainOptions(**how), own_data


def _how(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `Options`, paths made of strings."""
    from walkback.runs.train_runs import TrainOptions

    known = [field.name for field in fields(TrainOptions)]
    for name in settings:
        if name not in known:
            raise unknown("setting", name, known)
    root = settings.get("data_root")
    return {**settings, "out": Path(settings.get("out", "runs")), "data_root": None if root is None else Path(root)}


def tensors(
    train_x: Any, train_y: Any, test_x: Any, test_y: Any, *, mean: Sequence[float] = (), std: Sequence[float] = ()
) -> Tensors:
    """Your own arrays or tensors as a data set for `train`.

    Inputs are uint8 images [n, channels, height, width], with `mean` and `std` per channel, or floats of any shape
    [n, ...], which are used as they are. Labels are whole numbers from 0.
    """
    from walkback.data.tensors import from_tensors

    return from_tensors(train_x, train_y, test_x, test_y, mean=mean, std=std)


def diagnose(
    model: nn.Module,
    eval_batches: Iterable[Any],
    headline_acc: float | Sequence[float] | None = None,
    frozen_baseline_acc: float | Sequence[float] | Mapping[str, Any] | None = None,
    *,
    bp_acc: float | Sequence[float] | None = None,
    null: Literal["method_shell", "bp_shell"] = "method_shell",
    method_name: str = "",
    notes: str = "",
    credit: Callable[[FrozenPass], Sequence[Any]] | None = None,
    blocks: Any = "auto",
    pool: Literal["auto", "cls", "mean", "all"] = "auto",
    step_fn: Callable[[nn.Module, Any], Any] | None = None,
    thresholds: DiagnosticThresholds | None = None,
    protocol: Literal["three", "four"] = "three",
) -> DiagnosticReport:
    """Measure a trained model and judge what may be claimed of it. Nothing is trained; the model is left as it was.

    `eval_batches` are (x, y) pairs, at least 8 groups of 128 samples, cut as you like. Accuracies are fractions, one
    number or one per seed; `frozen_baseline_acc` may be a dict by null (`method_shell`, `bp_shell`). `credit` maps a
    frozen pass (states, reference, error, ...) to credits a_0..a_L. `blocks` names the residual blocks where they are
    not found; `step_fn(model, batch)` gives per-sample losses where the model is no plain classifier.
    """
    from walkback.auditing.diagnose_model import diagnose_model
    from walkback.judge.options import JudgeOptions

    accuracies = {"headline_acc": headline_acc, "frozen_baseline_acc": frozen_baseline_acc, "bp_acc": bp_acc}
    return diagnose_model(
        model,
        eval_batches,
        accuracies,
        JudgeOptions(thresholds, protocol, null),
        method_name=method_name,
        notes=notes,
        credit=credit,
        blocks=blocks,
        pool=pool,
        step_fn=step_fn,
    )


def load(path: str | Path) -> Run:
    """Open a finished run: `.record`, `.log()`, `.model()` and `.rule_state()` (numpy arrays by leaf name)."""
    from walkback.runs.store import open_run

    return open_run(Path(path))
