"""The Python surface: the same functions the commands call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from walkback.core.config import RunConfig
from walkback.core.settings import Choice, build, convert

if TYPE_CHECKING:
    from walkback.data.tensors import Tensors
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


def load(path: str | Path) -> Run:
    """Open a finished run: `.record`, `.log()`, `.model()` and `.rule_state()` (numpy arrays by leaf name)."""
    from walkback.studies.store import open_run

    return open_run(Path(path))
