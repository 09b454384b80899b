"""What a bench is asked and what it answers: rows of times and of their ratios to one base."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class BenchOptions:
    """What a user may choose; a bench uses what it has a use for."""

    repeats: int | None = None
    """Timed rounds; None leaves it to the bench."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    quick: bool = False
    """Tiny sizes and two rounds: to see that a bench runs, not how fast anything is."""
    models: tuple[int, ...] = ()
    """Fleet sizes; none leaves them to the bench."""
    methods: tuple[str, ...] = ()
    """Methods to time; none leaves them to the bench."""
    archs: tuple[str, ...] = ()
    """Architectures to time; none leaves them to the bench."""
    hear: Callable[[str], None] = field(default=lambda what: None, compare=False)
    """Told what is being timed now."""

    def rounds(self, usual: int) -> int:
        if self.repeats is not None:
            return self.repeats
        return 2 if self.quick else usual


@dataclass(frozen=True)
class Spread:
    """Median and quartiles over the timed rounds."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return Spread(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(median, low, high)


@dataclass(frozen=True)
class BenchTarget:
    """What a median is held to."""

    on: Literal["ms", "ratio", "second"]
    most: float | None = None
    least: float | None = None


@dataclass(frozen=True)
class BenchRow:
    """One thing that was timed, or the reason why it was not."""

    what: str
    ms: Spread | None = None
    ratio: Spread | None = None
    """Taken within each round, so that a machine that slows down for a while does not enter it."""
    second: Spread | None = None
    """A ratio to another base, which the result names."""
    bars: tuple[BenchTarget, ...] = ()
    reason: str = ""

    @staticmethod
    def of(
        what: str,
        seconds: Sequence[float],
        ratios: Sequence[float],
        bars: Sequence[BenchTarget] = (),
        second: Sequence[float] = (),
    ) -> BenchRow:
        other = Spread.of(second) if second else None
        return BenchRow(what, Spread.of([1e3 * value for value in seconds]), Spread.of(ratios), other, tuple(bars))

    def holds(self, bar: BenchTarget) -> bool:
        """Whether the median of what the bar is on keeps to it."""
        spread: Spread = getattr(self, bar.on)
        return (bar.most is None or spread.median <= bar.most) and (bar.least is None or spread.median >= bar.least)

    @property
    def is_met(self) -> bool | None:
        """Whether all bars hold; None where there is none."""
        return all(map(self.holds, self.bars)) if self.bars else None


@dataclass(frozen=True)
class BenchResult:
    bench: str
    time: str
    """What the milliseconds are of: "ms per step"."""
    ratio: str
    """What the ratio is: "x as fast"."""
    repeats: int
    rows: tuple[BenchRow, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_share: bool = False
    """Whether ratios are small parts of a whole, to be shown in percent."""
    second: str = ""
    """What the second ratio is, where rows have one: "bp steps"."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> BenchResult:
        """Read back what `to_json` gave; keys that are not a result's (provenance) are left alone."""
        values = {name: plain[name] for name in BenchResult.__dataclass_fields__}
        values["rows"] = tuple(_row(row) for row in plain["rows"])
        values["notes"] = tuple(plain["notes"])
        return BenchResult(**values)


def _row(plain: Mapping[str, Any]) -> BenchRow:
    spreads = {name: Spread(**plain[name]) if plain[name] else None for name in ("ms", "ratio", "second")}
    return BenchRow(**{**plain, **spreads, "bars": tuple(BenchTarget(**bar) for bar in plain["bars"])})
