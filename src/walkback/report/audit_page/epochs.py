"""Over the epochs: growth, the deepest gradient and accuracy as they were logged, and when D1 and D2 first fire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from walkback.judge.detector_alarms import PAPERS_FACTOR, alarm_of, first_alarm_epoch, is_watched
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.audit_page.member import Log, Member, Multiple, mean_of, told
from walkback.report.cells import EMPTY_CELL, Cell, size
from walkback.report.svg import TOP, AxisScale, Point, SvgAxes, svg_text

GROWTH, TOP_GRAD, ACCURACY = "growth", "grad_top", "test_acc"
TITLES = {GROWTH: "growth, log", TOP_GRAD: "‖g_L‖ @128, log", ACCURACY: "test accuracy"}
_SPECS = {GROWTH: ".3g", TOP_GRAD: ".3g", ACCURACY: ".3f"}
_DETECTORS = {"D1": GROWTH, "D2": TOP_GRAD}
"""Each detector with what it looks at."""
UNWATCHED, NO_LOG = "not watched while training", "no training log"
_MANY = 15
"""More epochs than this are drawn as lines without dots."""
_ROOM = 26
"""Above the accuracies, for the names of the detectors' marks: a line of its own for each."""


def epoch_multiples(members: Sequence[Member]) -> list[Multiple]:
    """Three plots for each method."""
    t = _thresholds_of(members[0])
    logs = [log for member in members for log in member.logs]
    epochs = [int(row["epoch"]) for log in logs for row in log] or [1]
    scales = {
        GROWTH: AxisScale.decades([*_known(logs, GROWTH), t.h_norm_explosion_ratio]),
        TOP_GRAD: AxisScale.decades([*_known(logs, TOP_GRAD), t.g_norm_floor]),
        ACCURACY: AxisScale.around(_known(logs, ACCURACY), 0.0, 0.2),
    }
    span = min(epochs), max(epochs)
    return [_multiple(member, t, scales, span) for member in members]


def _thresholds_of(member: Member) -> DiagnosticThresholds:
    """A table's cards are all judged by the same."""
    return DiagnosticThresholds(**member.cards[0]["thresholds"])


def heads(members: Sequence[Member]) -> tuple[str, ...]:
    """Of the table of first epochs."""
    t = _thresholds_of(members[0])
    return (
        "method",
        f"D1, growth > {size(t.h_norm_explosion_ratio)}",
        f"D2, |g_L| < {size(t.g_norm_floor)}",
        f"D2 at {size(PAPERS_FACTOR * t.g_norm_floor)}",
        "epochs",
    )


def firing(members: Sequence[Member]) -> list[tuple[Cell, ...]]:
    """First epochs by seed, in words: the marks once more for those who read tables."""
    t = _thresholds_of(members[0])
    rows = []
    for member in members:
        found = [
            _epochs(member, "D1", t),
            _epochs(member, "D2", t),
            _epochs(member, "D2", t, PAPERS_FACTOR * t.g_norm_floor),
        ]
        lengths = dict.fromkeys(str(log[-1]["epoch"]) for log in member.logs if log)
        rows.append((Cell(member.name), *found, Cell(" or ".join(lengths) or EMPTY_CELL)))
    return rows


def _fired(member: Member, check: str, t: DiagnosticThresholds, floor: float | None = None) -> list[int | None]:
    """The first epoch at which a detector fires in each seed that was watched."""
    return [first_alarm_epoch(log, alarm_of(check, t, floor)) for log in member.logs if any(map(is_watched, log))]


def _epochs(member: Member, check: str, t: DiagnosticThresholds, floor: float | None = None) -> Cell:
    found = ["never" if epoch is None else str(epoch) for epoch in _fired(member, check, t, floor)]
    if not found:
        return Cell(UNWATCHED if any(member.logs) else NO_LOG)
    left = len(member.logs) - len(found)
    rest = f" ({left} of {len(member.logs)} not watched)" if left else ""
    return Cell((found[0] if len(set(found)) == 1 else ", ".join(found)) + rest)


def _multiple(member: Member, t: DiagnosticThresholds, scales: dict[str, AxisScale], span: tuple[int, int]) -> Multiple:
    levels = {GROWTH: ("D1", t.h_norm_explosion_ratio), TOP_GRAD: ("D2", t.g_norm_floor)}
    panels = []
    for key, scale in scales.items():
        axes = SvgAxes(TITLES[key], "epoch", *span, scale, _ROOM if key == ACCURACY else 0)
        found = _series(member, key)
        if found:
            means = mean_of(list(found.values()), scale.log)
            parts = [*_marks(axes, member, t, key), *_drawn(axes, found, means, key)]
            if key in levels:
                check, level = levels[key]
                # Its name keeps clear of the marks as of the curves.
                marks: list[Point] = [(epoch, level) for epoch in _fired(member, check, t) if epoch is not None]
                parts = [*axes.threshold(level, f"{check} {size(level)}", [*found.values(), means, marks]), *parts]
        else:
            parts = [axes.words(UNWATCHED if any(member.logs) else NO_LOG)]
        panels.append(axes.drawn(parts, f"{TITLES[key]} of {member.name} by epoch"))
    return Multiple(member, tuple(panels), tuple(_notes(member)))


def _marks(axes: SvgAxes, member: Member, t: DiagnosticThresholds, key: str) -> list[Markup]:
    """Lines up at the first firings; the names in lines of their own and on top, so that nothing lies over one."""
    lines, names = [], []
    for row, (check, looks_at) in enumerate(_DETECTORS.items()):
        if key not in (looks_at, ACCURACY):
            continue
        found = _fired(member, check, t)
        known = sorted({epoch for epoch in found if epoch is not None})
        lines += [axes.mark(epoch, f"fired {check}") for epoch in known]
        if key == looks_at:
            names.append(axes.aside(_said(check, found)))
        elif known:
            names.append(_flag(axes, known[0], check, row))
    return lines + names


def _flag(axes: SvgAxes, epoch: int, check: str, row: int) -> Markup:
    """A detector's name beside its mark, on the side where there is room."""
    right = axes.x(epoch) < axes.x(axes.last) - 20 or axes.last == axes.first
    x = axes.x(epoch) + (3 if right else -3)
    return svg_text(x, TOP + 10 + 12 * row, check, "start" if right else "end", "small halo")


def _said(check: str, found: Sequence[int | None]) -> str:
    known = sorted(epoch for epoch in found if epoch is not None)
    if not known:
        return f"{check} never" if found else ""
    ends = " to ".join(dict.fromkeys(map(str, (known[0], known[-1]))))
    share = "" if len(known) == len(found) else f" in {len(known)} of {len(found)}"
    return f"{check} at {ends}{share}"


def _drawn(axes: SvgAxes, found: Mapping[str, list[Point]], means: list[Point], key: str) -> Iterator[Markup]:
    """The curves; with a mark for every number where there are not too many, and crosses where it was not finite."""
    several, few = len(found) > 1, max(map(len, found.values())) <= _MANY
    for points in found.values() if several else ():
        yield from axes.curve(points, "seed")
    yield from axes.curve(means, "curve")
    for seed, points in found.items():
        for epoch, value in points:
            if value is None:
                yield axes.cross(epoch, told(f"epoch {epoch:g}", seed, "not finite"))
            elif several and few:
                yield axes.dot(epoch, value, "speck", 1.4, told(f"epoch {epoch:g}", seed, format(value, _SPECS[key])))
    for epoch, mean in means if few or len(means) == 1 else ():
        if mean is not None:
            says = told(f"epoch {epoch:g}", "mean" if several else "", format(mean, _SPECS[key]))
            yield axes.dot(epoch, mean, "dot", 2.2, says)


def _series(member: Member, key: str) -> dict[str, list[Point]]:
    """By seed, where its log holds this number at all; an epoch that was not looked at has no point."""
    found: dict[str, list[Point]] = {}
    for seed, log in zip(member.seeds, member.logs, strict=True):
        found[seed] = [(int(row["epoch"]), row[key]) for row in log if key in row]
    return {seed: points for seed, points in found.items() if points}


def _notes(member: Member) -> list[str]:
    watched = sum(any(map(is_watched, log)) for log in member.logs)
    logged = sum(bool(log) for log in member.logs)
    if watched and watched < len(member.logs):
        return [f"{UNWATCHED.capitalize()}: {len(member.logs) - watched} of {len(member.logs)} seeds."]
    if logged and logged < len(member.logs):
        return [f"{NO_LOG.capitalize()}: {len(member.logs) - logged} of {len(member.logs)} seeds."]
    return []


def _known(logs: Sequence[Log], key: str) -> list[float]:
    return [row[key] for log in logs for row in log if row.get(key) is not None]
