"""The Python surface: the same functions the commands call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from walkback.core.config import RunConfig
from walkback.core.settings import Choice, build

if TYPE_CHECKING:
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
    numbers = [seeds] if isinstance(seeds, int) else seeds
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
    data: str = "prototypes",
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
    configs = grid(methods, arch=arch, data=data, seeds=seeds, **settings)
    return run.train(configs, options, listener or run.Listener())


def load(path: str | Path) -> Run:
    """Open a finished run: `.record`, `.log()`, `.model()` and `.rule_state()` (numpy arrays by leaf name)."""
    from walkback.studies.store import open_run

    return open_run(Path(path))
