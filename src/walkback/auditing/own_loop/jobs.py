"""The jobs of an audit of a training function: for each method and seed the method, its baselines and its oracle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from walkback.core.errors import InputError

BACKPROP = "bp"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class LoopJob:
    """One training that the user's function is asked for."""

    method: str
    seed: int
    frozen: bool = False
    """Whether it is a frozen baseline."""
    credit: Literal["own", "exact"] = "own"
    """`exact`: the oracle control, the method's update with the true gradient as credit."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        exact, frozen = "-exact" * (self.credit == "exact"), "-frozen" * self.frozen
        return f"{self.method}{exact}{frozen}-s{self.seed}"

    @property
    def shown(self) -> str:
        """The training as a table names it."""
        settings = ["credit=exact"] * (self.credit == "exact") + ["shell=method"] * self.frozen
        return f"{self.method}:{','.join(settings)}" if settings else self.method

    @property
    def baseline(self) -> LoopJob:
        """The same training with the blocks frozen."""
        return replace(self, frozen=True)

    @property
    def oracle(self) -> LoopJob:
        """The same training with exact credit."""
        return replace(self, credit="exact")

    @property
    def backprop(self) -> LoopJob:
        return LoopJob(BACKPROP, self.seed)

    def with_seed(self, seed: int) -> LoopJob:
        return replace(self, seed=seed)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def loop_jobs(methods: str | Sequence[str], seeds: int | Sequence[int], oracle: bool) -> list[LoopJob]:
    """Every training of an audit, each once: for each seed first the methods, then what they are compared with."""
    found: dict[str, LoopJob] = {}
    for method in method_jobs(methods, seeds):
        compared = [method, method.baseline, method.backprop, method.backprop.baseline]
        if oracle and method.method != BACKPROP:
            compared += [method.oracle, method.oracle.baseline]
        for job in compared:
            if found.setdefault(job.name, job) != job:
                raise InputError(f"The methods '{job.method}' and '{found[job.name].method}' need folders of one name.")
    return list(found.values())


def method_jobs(methods: str | Sequence[str], seeds: int | Sequence[int]) -> list[LoopJob]:
    """The audited trainings themselves."""
    names = [methods] if isinstance(methods, str) else list(methods)
    numbers = [seeds] if isinstance(seeds, int) else list(seeds)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(
                f"methods has {name!r}; expected names of letters, digits and _ . + -, such as ['mine', 'bp']. Frozen "
                "baselines and oracles are added by the audit."
            )
    for seed in numbers:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise InputError(f"seeds has {seed!r}; expected whole numbers from 0, such as [0, 1, 2].")
    lists: dict[str, list[Any]] = {"methods": names, "seeds": numbers}
    for what, given in lists.items():
        if not given:
            raise InputError(f"{what} is empty, so there is nothing to train.")
        twice = [each for each in given if given.count(each) > 1]
        if twice:
            raise InputError(f"{what} has {twice[0]!r} twice. Give it once.")
    return [LoopJob(name, seed) for name in names for seed in numbers]
