"""Options and results of benches. A result has rows of times and of their ratios to a baseline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class BenchOptions:
    """The options of `walkback bench`; a bench ignores those that do not apply to it."""

    repeats: int | None = None
    """Timed rounds; None for the bench's default."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    quick: bool = False
    """Tiny sizes and two rounds, to test that a bench runs; the times mean nothing."""
    models: tuple[int, ...] = ()
    """Fleet sizes; empty for the bench's default."""
    methods: tuple[str, ...] = ()
    """Methods to time; empty for the bench's default."""
    archs: tuple[str, ...] = ()
    """Architectures to time; empty for the bench's default."""
    on_task: Callable[[str], None] = field(default=lambda name: None, compare=False)
    """Called with the name of each task before it is timed."""

    def rounds(self, default: int) -> int:
        """The number of timed rounds: the user's choice, 2 with `quick`, otherwise `default`."""
        if self.repeats is not None:
            return self.repeats
        return 2 if self.quick else default


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
    """A bound on a median: at most `most`, or at least `least`."""

    on: Literal["ms", "ratio", "second"]
    """The field of the row that the target is for."""
    most: float | None = None
    least: float | None = None


@dataclass(frozen=True)
class BenchRow:
    """One task that was timed, or the reason why it was not."""

    what: str
    ms: Spread | None = None
    ratio: Spread | None = None
    """Computed within each round, so that a machine that slows down for a while does not affect it."""
    second: Spread | None = None
    """A ratio to another baseline, which `BenchResult.second` names."""
    bars: tuple[BenchTarget, ...] = ()
    """The targets; named `bars` in stored results."""
    reason: str = ""
    """Why the task was not timed; empty where it was."""

    @staticmethod
    def of(
        what: str,
        seconds: Sequence[float],
        ratios: Sequence[float],
        bars: Sequence[BenchTarget] = (),
        second: Sequence[float] = (),
    ) -> BenchRow:
        """A row from the seconds and ratios of each round."""
        other = Spread.of(second) if second else None
        return BenchRow(what, Spread.of([1e3 * value for value in seconds]), Spread.of(ratios), other, tuple(bars))

    def meets(self, target: BenchTarget) -> bool:
        """Whether the median is within the target's bounds."""
        median: float = getattr(self, target.on).median
        return (target.most is None or median <= target.most) and (target.least is None or median >= target.least)

    @property
    def is_met(self) -> bool | None:
        """Whether all targets are met; None where there is none."""
        return all(map(self.meets, self.bars)) if self.bars else None


@dataclass(frozen=True)
class BenchResult:
    """The result of one bench."""

    bench: str
    time: str
    """Heading of the times, such as "ms per step"."""
    ratio: str
    """Heading of the ratios, such as "x as fast"."""
    repeats: int
    rows: tuple[BenchRow, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_share: bool = False
    """Whether ratios are shares, shown in percent."""
    second: str = ""
    """Heading of the second ratio, such as "bp steps"; empty where rows have none."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> BenchResult:
        """Read the output of `to_json`; other keys (provenance) are ignored."""
        values = {name: document[name] for name in BenchResult.__dataclass_fields__}
        values["rows"] = tuple(_row(row) for row in document["rows"])
        values["notes"] = tuple(document["notes"])
        return BenchResult(**values)


def _row(document: Mapping[str, Any]) -> BenchRow:
    spreads = {name: Spread(**document[name]) if document[name] else None for name in ("ms", "ratio", "second")}
    return BenchRow(**{**document, **spreads, "bars": tuple(BenchTarget(**bar) for bar in document["bars"])})
