"""The Python surface: the same functions the commands call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from walkback.core.config import RunConfig
from walkback.core.settings import Choice, build, convert

if TYPE_CHECKING:
    from torch import nn

    from walkback.data.tensors import Tensors
    from walkback.judge.report import DiagnosticReport
    from walkback.judge.thresholds import DiagnosticThresholds
    from walkback.measure.subject import FrozenPass
    from walkback.studies.run import Listener, Result
    from walkback.studies.store import Run


def grid(
    methods: str | Sequence[str] = "bp",
    *,
    arch: str = "resmlp",
    data: str = "prototypes",
    seeds: int | Sequence[int] = 42,
    **settings: Any,
) -> list[RunConfig]:
    """One configuration for each method and seed; `settings` are fields of `RunConfig` (epochs, batch, lr, ...)."""
    names = [methods] if isinstance(methods, str) else methods
    numbers = [convert(seed, int, "seed") for seed in ([seeds] if isinstance(seeds, int | str) else seeds)]
    base = build(RunConfig, settings, "the run")
    shared = {name: getattr(base, name) for name in settings}
    return [
        RunConfig(method=Choice.parse(m), arch=Choice.parse(arch), data=Choice.parse(data), seed=seed, **shared)
        for m in names
        for seed in numbers
    ]


def train(
    methods: str | Sequence[str] = "bp",
    *,
    arch: str = "resmlp",
    data: str | Tensors = "prototypes",
    seeds: int | Sequence[int] = 42,
    out: str | Path = "runs",
    resume: bool = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    driver: Literal["auto", "single", "fleet"] = "auto",
    data_root: str | Path | None = None,
    max_seconds: float | None = None,
    checkpoint_seconds: float = 30.0,
    command: Sequence[str] = (),
    listener: Listener | None = None,
    **settings: Any,
) -> list[Result]:
    """Train a grid of methods and seeds as one plan of fleets, each run into its own folder below `out`.

    A method is written as on the command line: `"dfa"`, `"dfa:scale=unit_error,site=input"`, `"fa:shell=method"`.
    `data` is a data set's name or the result of `tensors`; other settings are fields of `RunConfig` (batch, lr, ...).
    Returns one result per run, methods outermost.
    """
    from walkback.studies import run

    options = run.Options(
        out=Path(out),
        resume=resume,
        device=device,
        driver=driver,
        data_root=None if data_root is None else Path(data_root),
        max_seconds=max_seconds,
        checkpoint_seconds=checkpoint_seconds,
        command=tuple(command),
    )
    name, own_data = (data, None) if isinstance(data, str) else ("tensors", data)
    configs = grid(methods, arch=arch, data=name, seeds=seeds, **settings)
    return run.train(configs, options, listener or run.Listener(), own_data)


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
    from walkback.studies.diagnosis import Judging, diagnose_model

    accuracies = {"headline_acc": headline_acc, "frozen_baseline_acc": frozen_baseline_acc, "bp_acc": bp_acc}
    return diagnose_model(
        model,
        eval_batches,
        accuracies,
        Judging(thresholds, protocol, null),
        method_name=method_name,
        notes=notes,
        credit=credit,
        blocks=blocks,
        pool=pool,
        step_fn=step_fn,
    )


def load(path: str | Path) -> Run:
    """Open a finished run: `.record`, `.log()`, `.model()` and `.rule_state()` (numpy arrays by leaf name)."""
    from walkback.studies.store import open_run

    return open_run(Path(path))
