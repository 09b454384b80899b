"""The accuracies that a claim is based on: of the method, of its frozen baselines, and of backprop if known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from walkback.core.errors import InputError, unknown
from walkback.judge.card_part import AccuracySeeds, CardPart, JsonKeys, JsonLimits
from walkback.judge.statistics import NATS, PERCENTAGE_POINTS, Margin, loss_margin, paired_margin

METHOD_SHELL, BP_SHELL, UNNAMED = "method_shell", "bp_shell", "unnamed"
NULLS: dict[str, str] = {
    METHOD_SHELL: "blocks frozen at random, the rest trained by the method's own credit",
    BP_SHELL: "blocks frozen at random, the rest trained by backprop",
    UNNAMED: "null unnamed: a bare number; which frozen baseline it is was not given",
}
NULL_NAMES = {METHOD_SHELL: "frozen baseline", BP_SHELL: "bp frozen baseline", UNNAMED: "null unnamed"}
"""What texts call them."""
EXACT_ORACLE, INPUT_ORACLE, DIRECTION_ORACLE = "exact", "input", "direction"
ORACLES: dict[str, str] = {
    EXACT_ORACLE: "exact credit at each block's output (O1)",
    INPUT_ORACLE: "exact credit at each block's input (O2)",
    DIRECTION_ORACLE: "the exact direction, with the size of the method's own credit (O3)",
}
"""The oracle controls: the same training with exact credit."""

Accuracies = float | Sequence[float] | None
"""What a user may pass: one number, one per seed, or None."""


LossSeeds = tuple[Annotated[float, JsonLimits(0)], ...]
"""Test losses in nats a token, one for each seed."""


@dataclass(frozen=True)
class TestLosses(CardPart):
    """Test losses in nats a token for each seed, beside the accuracies: then these decide."""

    __test__ = False  # The name starts with "Test", but it is no pytest class.

    headline: LossSeeds
    frozen: Annotated[Mapping[str, LossSeeds], JsonKeys(tuple(NULLS), required=False)] = field(default_factory=dict)
    """By the kind of frozen baseline."""
    bp: LossSeeds = ()
    windows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """For a single seed, the loss of each test window: by the kind of frozen baseline, of backprop ("bp") and of the
    method ("headline")."""

    JSON_KEYS = ("headline", "frozen", "bp")


@dataclass(frozen=True)
class OracleAccuracies(CardPart):
    """One accuracy for each seed of an oracle control and of its own frozen baseline, in the order of the method's."""

    method: str
    """The oracle's training as a user writes it: backprop's own run, for example."""
    acc: AccuracySeeds
    frozen_acc: AccuracySeeds
    correct: tuple[bool, ...] = ()
    """Per-sample correctness of a single seed, and that of the frozen baseline, on the same samples."""
    frozen_correct: tuple[bool, ...] = ()
    loss: LossSeeds = ()
    """Its test losses, and those of its frozen baseline, where the method has some."""
    frozen_loss: LossSeeds = ()

    JSON_KEYS = ("method", "acc", "frozen_acc", "loss", "frozen_loss")
    JSON_REQUIRED = ("method", "acc", "frozen_acc")

    def to_json(self) -> dict[str, Any]:
        """Losses are written where there are some."""
        return {key: value for key, value in super().to_json().items() if value or key in self.JSON_REQUIRED}


@dataclass(frozen=True)
class Evidence:
    """One accuracy (0 to 1) for each seed, the same seeds in the same order everywhere."""

    headline_acc: tuple[float, ...] = ()
    frozen: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By the kind of frozen baseline (a key of NULLS)."""
    bp_acc: tuple[float, ...] = ()
    null: str = METHOD_SHELL
    """The kind of frozen baseline that decides D3."""
    correct: tuple[bool, ...] = ()
    """Per-sample correctness of a single seed; if empty, that of the measured samples is used."""
    frozen_correct: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    """Per-sample correctness of the frozen baselines, on the same samples."""
    bp_correct: tuple[bool, ...] = ()
    """Per-sample correctness of backprop, on the same samples."""
    seeds: tuple[int, ...] = ()
    """The seeds of the accuracies, if known."""
    oracles: Mapping[str, OracleAccuracies] = field(default_factory=dict)
    """By the kind of oracle control (a key of ORACLES); those that have every seed."""
    test_samples: int | None = None
    """The size of the test set that the accuracies were measured on, if known."""
    losses: TestLosses | None = None
    """Where there are losses, the margins are those of the losses, in nats; the accuracies stay beside them."""

    def __post_init__(self) -> None:
        for name, seeds in self.frozen.items():
            counts = {len(self.headline_acc), len(seeds)}
            if len(counts) == 2 and not counts & {0, 1}:
                raise InputError(
                    f"headline_acc has {len(self.headline_acc)} seeds and the frozen baseline '{name}' {len(seeds)}; "
                    "expected the same seeds in the same order, so that they can be paired. Give one per seed, or one."
                )
        for kind, oracle in self.oracles.items():
            if kind not in ORACLES:
                raise unknown("oracle", kind, ORACLES)
            if not len(oracle.acc) == len(oracle.frozen_acc) == len(self.headline_acc):
                raise InputError(
                    f"The oracle '{kind}' has {len(oracle.acc)} seeds, its frozen baseline {len(oracle.frozen_acc)} "
                    f"and headline_acc {len(self.headline_acc)}; expected the same seeds in the same order."
                )

    @staticmethod
    def of(
        headline_acc: Accuracies = None,
        frozen_baseline_acc: Accuracies | Mapping[str, Accuracies] = None,
        bp_acc: Accuracies = None,
        null: str = METHOD_SHELL,
        correct: Iterable[Any] | None = None,
        frozen_correct: Mapping[str, Iterable[Any]] | None = None,
        bp_correct: Iterable[Any] | None = None,
        seeds: Iterable[int] = (),
        test_samples: int | None = None,
        oracles: Mapping[str, OracleAccuracies] | None = None,
        headline_loss: Accuracies = None,
        frozen_baseline_loss: Accuracies | Mapping[str, Accuracies] = None,
        bp_loss: Accuracies = None,
        window_losses: Mapping[str, Iterable[float]] | None = None,
    ) -> Evidence:
        """Evidence from what a user passes: numbers, one per seed, or for the baseline a dict of these by its kind."""
        if null not in (METHOD_SHELL, BP_SHELL):
            raise unknown("null", null, (METHOD_SHELL, BP_SHELL))
        frozen = _by_kind(frozen_baseline_acc, "frozen_baseline_acc", _accuracy)
        losses = None
        if headline_loss is not None:
            losses = TestLosses(
                _numbers(headline_loss, "headline_loss", _loss),
                _by_kind(frozen_baseline_loss, "frozen_baseline_loss", _loss),
                _numbers(bp_loss, "bp_loss", _loss),
                {name: tuple(map(float, values)) for name, values in (window_losses or {}).items()},
            )
        elif frozen_baseline_loss is not None or bp_loss is not None:
            raise InputError("A baseline's loss is given without headline_loss. Give the method's own test loss too.")
        return Evidence(
            headline_acc=_accuracies(headline_acc, "headline_acc"),
            frozen=frozen,
            bp_acc=_accuracies(bp_acc, "bp_acc"),
            null=null,
            correct=_correctness(() if correct is None else correct, "correct"),
            frozen_correct={
                _null(name): _correctness(values, f"frozen_correct '{name}'")
                for name, values in (frozen_correct or {}).items()
            },
            bp_correct=_correctness(() if bp_correct is None else bp_correct, "bp_correct"),
            seeds=tuple(seeds),
            test_samples=_sample_size(test_samples),
            oracles=oracles or {},
            losses=losses,
        )

    @property
    def deciding(self) -> str:
        """The kind of frozen baseline that decides: `null`, or the unnamed one if only that was given."""
        return UNNAMED if UNNAMED in self.baselines and self.null not in self.baselines else self.null

    @property
    def unit(self) -> str:
        """The unit of the margins."""
        return PERCENTAGE_POINTS if self.losses is None else NATS

    @property
    def baselines(self) -> Mapping[str, tuple[float, ...]]:
        """The numbers of the frozen baselines that margins are taken over: losses where there are some."""
        return self.frozen if self.losses is None else self.losses.frozen

    @property
    def headline(self) -> tuple[float, ...]:
        """The numbers of the method, likewise."""
        return self.headline_acc if self.losses is None else self.losses.headline

    @property
    def bp(self) -> tuple[float, ...]:
        """The numbers of backprop, likewise."""
        return self.bp_acc if self.losses is None else self.losses.bp

    def margin(self, null: str, confidence: float = 0.95) -> Margin | None:
        """By how much the method is better than the named baseline; None if one of the two was not given."""
        return self.margin_of(self.headline, null, confidence)

    def margin_of(self, accuracies: Sequence[float], null: str, confidence: float) -> Margin | None:
        """By how much these accuracies (or losses) are better than those of the named baseline; None if one of the two
        was not given."""
        theirs = self.baselines.get(null)
        if not accuracies or not theirs:
            return None
        return (paired_margin if self.losses is None else loss_margin)(accuracies, theirs, confidence)

    def to_json(self) -> dict[str, Any]:
        oracles = {kind: oracle.to_json() for kind, oracle in self.oracles.items()}
        return {
            "seeds": list(self.seeds),
            "headline_acc": list(self.headline_acc),
            "frozen": {name: list(seeds) for name, seeds in self.frozen.items()},
            "bp_acc": list(self.bp_acc),
            "null": self.deciding,
            "test_samples": self.test_samples,
            **({"oracles": oracles} if oracles else {}),
            **({"losses": self.losses.to_json()} if self.losses else {}),
        }


def mean(seeds: Sequence[float]) -> float:
    return math.fsum(seeds) / len(seeds)


def _null(name: object) -> str:
    if name not in NULLS:
        raise unknown("null", name, NULLS)
    return str(name)


def _accuracies(given: Any, what: str) -> tuple[float, ...]:
    return _numbers(given, what, _accuracy)


def _by_kind(given: Any, what: str, check: Callable[[Any, str], float]) -> dict[str, tuple[float, ...]]:
    """The numbers of frozen baselines: by their kind, or bare ones of a kind that was not given."""
    pairs = given.items() if isinstance(given, Mapping) else [(UNNAMED, given)]
    bare = what if not isinstance(given, Mapping) else ""
    found = {name: _numbers(value, bare or f"the frozen baseline '{_null(name)}'", check) for name, value in pairs}
    return {name: numbers for name, numbers in found.items() if numbers}


def _numbers(given: Any, what: str, check: Callable[[Any, str], float]) -> tuple[float, ...]:
    if given is None:
        return ()
    if isinstance(given, str | bytes | bool | Mapping):
        expected = "a number from 0 to 1" if check is _accuracy else "a loss in nats"
        raise InputError(f"{what} is {given!r}; expected {expected}, one per seed, or None.")
    try:
        values = list(given)
    except TypeError:  # A single number, or an array without axes.
        values = [given]
    return tuple(check(value, what) for value in values)


def _loss(given: Any, what: str) -> float:
    try:
        value = float(given) if not isinstance(given, str | bool) else math.nan
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f"{what} is {given!r}; expected a mean loss in nats a token, at least 0.")
    return value


def _accuracy(given: Any, what: str) -> float:
    try:
        value = float(given) if not isinstance(given, str | bool) else math.nan
    except (TypeError, ValueError):
        value = math.nan
    if 1 < value <= 100:
        raise InputError(
            f"{what} is {value:g}; expected a fraction from 0 to 1, not a percentage. Write {value / 100:g}."
        )
    if not 0 <= value <= 1:
        raise InputError(f"{what} is {given!r}; expected a number from 0 to 1.")
    return value


def _sample_size(given: Any) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InputError(f"test_samples is {given!r}; expected the number of test samples, such as 10000.")
    return given


def _correctness(given: Iterable[Any], what: str) -> tuple[bool, ...]:
    values = tuple(given)
    for value in values:
        if value not in (0, 1):
            raise InputError(
                f"{what} contains {value!r}; expected 1 for each right prediction and 0 for each wrong one."
            )
    return tuple(bool(value) for value in values)
