"""Learning rates chosen on held-out training samples: what is asked for, the choice, and the table of all results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from walkback.core.configuration import config_digest
from walkback.core.errors import InputError, unknown
from walkback.core.settings import convert, require_above, require_at_least

FIRST_TUNING_SEED = 1000
"""The seed of tuning runs, or the next one that no judged run has."""
MAX_ADDED = 3
"""The number of learning rates by which the grid is extended at each end, at most."""

Edge = Literal["", "lowest", "highest"]
Scores = Mapping[float, Sequence[float]]
"""By learning rate, the held-out accuracy (or loss in nats) of each tuning seed."""


@dataclass(frozen=True)
class TuneOptions:
    """What is tuned, and how."""

    lr: tuple[float, ...]
    """The grid of learning rates, in increasing order."""
    seeds: tuple[int, ...] = ()
    """The seeds of the tuning runs; empty: one that no judged run has."""
    held_out: float = 0.2
    """The share of the training samples that the choice is made on."""

    def __post_init__(self) -> None:
        rates = tuple(sorted({convert(value, float, "lr of tune") for value in self.lr}))
        if len(rates) < 2:
            raise InputError(f"tune has {len(rates)} learning rate; expected at least two, such as lr=1e-4,1e-3,1e-2.")
        for rate in rates:
            require_above(rate, 0, "lr of tune")
        seeds = tuple(dict.fromkeys(convert(seed, int, "seeds of tune") for seed in self.seeds))
        for seed in seeds:
            require_at_least(seed, 0, "seeds of tune")
        share = convert(self.held_out, float, "held_out of tune")
        if not 0 < share < 1:
            raise InputError(f"held_out of tune is {share:g}; expected a share above 0 and below 1.")
        for name, value in (("lr", rates), ("seeds", seeds), ("held_out", share)):
            object.__setattr__(self, name, value)

    @staticmethod
    def of(given: Any) -> TuneOptions | None:
        """What a user passes: text such as `lr=1e-4,1e-3`, a mapping with lr, seeds and held_out, or None."""
        if given is None or isinstance(given, TuneOptions):
            return given
        if isinstance(given, str):
            key, _, values = given.partition("=")
            given = {key: list(filter(None, values.split(",")))}
        if not isinstance(given, Mapping):
            raise InputError(f"tune is {given!r}; expected text such as 'lr=1e-4,1e-3' or {{'lr': [1e-4, 1e-3]}}.")
        for key in given:
            if key not in ("lr", "seeds", "held_out"):
                raise unknown("setting of tune", key, ("lr", "seeds", "held_out"))
        if "lr" not in given:
            raise InputError("tune has no learning rates. Write, for example, tune='lr=1e-4,3e-4,1e-3,3e-3'.")
        rates, seeds = (_tuple(given.get(key, ())) for key in ("lr", "seeds"))
        return TuneOptions(rates, seeds, given.get("held_out", TuneOptions.held_out))

    def seeds_beside(self, judged: Iterable[int]) -> tuple[int, ...]:
        """The tuning seeds; a judged one among them is refused."""
        taken = set(judged)
        both = sorted(taken & set(self.seeds))
        if both:
            raise InputError(
                f"Seed {both[0]} is both judged and used for tuning. Give tuning seeds that are not judged."
            )
        free = FIRST_TUNING_SEED
        while free in taken:
            free += 1
        return self.seeds or (free,)


@dataclass(frozen=True)
class TunedMethod:
    """One method's learning rates with their held-out scores, and the chosen one."""

    method: str
    scores: Scores
    unit: Literal["accuracy", "nats"] = "accuracy"

    @property
    def grid(self) -> list[float]:
        return sorted(self.scores)

    @property
    def means(self) -> dict[float, float]:
        return {rate: fmean(self.scores[rate]) for rate in self.grid}

    @property
    def chosen(self) -> float:
        """The rate with the best mean score; of equal ones the one in the middle, so that none is taken for an edge."""
        means = self.means
        best = (max if self.unit == "accuracy" else min)(means.values())
        equal = [rate for rate in self.grid if means[rate] == best]
        return equal[(len(equal) - 1) // 2]

    @property
    def edge(self) -> Edge:
        """The end of the grid at which the chosen rate is: the best rate may then lie outside."""
        return "lowest" if self.chosen == self.grid[0] else "highest" if self.chosen == self.grid[-1] else ""


@dataclass(frozen=True)
class TuningTable:
    """The tuned methods of one grid: all were tried with the same learning rates, seeds and held-out samples."""

    setting: str
    """The digest of what all runs share (`setting_digest`)."""
    asked: TuneOptions
    """As given; its seeds are those that were used."""
    rows: tuple[TunedMethod, ...]

    @property
    def grid(self) -> list[float]:
        return sorted({rate for row in self.rows for rate in row.scores})

    @property
    def rates(self) -> dict[str, float]:
        """The chosen learning rate of each method."""
        return {row.method: row.chosen for row in self.rows}

    def to_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting,
            "asked": {"lr": self.asked.lr, "seeds": self.asked.seeds, "held_out": self.asked.held_out},
            "methods": [
                {
                    "method": row.method,
                    "chosen": row.chosen,
                    "edge": row.edge,
                    "unit": row.unit,
                    "scores": [{"lr": rate, "held_out": list(row.scores[rate])} for rate in row.grid],
                }
                for row in self.rows
            ],
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> TuningTable:
        """KeyError, TypeError, ValueError or InputError where the document is no table."""
        rows = tuple(
            TunedMethod(row["method"], {each["lr"]: tuple(each["held_out"]) for each in row["scores"]}, row["unit"])
            for row in document["methods"]
        )
        if any(row.chosen != stored["chosen"] for row, stored in zip(rows, document["methods"], strict=True)):
            raise ValueError("a chosen learning rate is not the best of its scores")
        asked = document["asked"]
        return TuningTable(
            document["setting"], TuneOptions(tuple(asked["lr"]), tuple(asked["seeds"]), asked["held_out"]), rows
        )


def _tuple(given: Any) -> tuple[Any, ...]:
    """One value or several as a tuple."""
    return (given,) if isinstance(given, int | float | str) else tuple(given)


def rates_to_add(asked: Sequence[float], rows: Sequence[TunedMethod]) -> list[float]:
    """The learning rates to try next because a method's best one is at an edge of the grid; at most MAX_ADDED at each
    end. The steps are those at the ends of the grid that was asked for."""
    grid = rows[0].grid
    edges = {row.edge for row in rows}
    added = []
    if "lowest" in edges and sum(rate < asked[0] for rate in grid) < MAX_ADDED:
        added.append(_rounded(grid[0] * asked[0] / asked[1]))
    if "highest" in edges and sum(rate > asked[-1] for rate in grid) < MAX_ADDED:
        added.append(_rounded(grid[-1] * asked[-1] / asked[-2]))
    return added


def _rounded(rate: float) -> float:
    """To four digits, so that 1e-4 / 10 is 1e-5 and no neighbour of it."""
    return float(f"{rate:.4g}")


def setting_digest(config: Mapping[str, Any]) -> str:
    """What runs of one table share: a configuration (as JSON) without method, seed and learning rate."""
    return config_digest({key: value for key, value in config.items() if key not in ("method", "seed", "lr")})
