"""Plots by epoch: growth, the deepest gradient and accuracy as logged, and the first epochs at which D1 and D2 fire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from walkback.judge.detector_alarms import PAPERS_FACTOR, alarm_of, first_alarm_epoch, is_watched
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.audit_page.member import Log, Member, Multiple, mark_title, mean_of
from walkback.report.cells import EMPTY_CELL, Cell, size
from walkback.report.svg import TOP, AxisScale, Point, SvgAxes, svg_text

GROWTH, TOP_GRAD, ACCURACY = "growth", "grad_top", "test_acc"
TITLES = {GROWTH: "growth (D1), log", TOP_GRAD: "‖g_L‖ @128, log", ACCURACY: "test accuracy"}
_SPECS = {GROWTH: ".3g", TOP_GRAD: ".3g", ACCURACY: ".3f"}
_DETECTORS = {"D1": GROWTH, "D2": TOP_GRAD}
"""Detectors and the logged quantity each one uses."""
UNWATCHED, NO_LOG = "not watched while training", "no training log"
_MANY = 15
"""More epochs than this are drawn as lines without dots."""
_LABEL_SPACE = 26
"""Space above the accuracies for the labels of the detectors' marks, one line for each detector."""


def epoch_multiples(members: Sequence[Member]) -> list[Multiple]:
    """Three plots for each method: growth, deepest gradient and accuracy."""
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
    """The thresholds of the first card; all cards of a table are judged by the same."""
    return DiagnosticThresholds(**member.cards[0]["thresholds"])


def first_alarm_heads(members: Sequence[Member]) -> tuple[str, ...]:
    """The heads of the table of first alarms."""
    t = _thresholds_of(members[0])
    return (
        "method",
        f"growth (D1) > {size(t.h_norm_explosion_ratio)}",
        f"|g_L| (D2) < {size(t.g_norm_floor)}",
        f"|g_L| (D2) < {size(PAPERS_FACTOR * t.g_norm_floor)}",
        "epochs",
    )


def first_alarm_rows(members: Sequence[Member]) -> list[tuple[Cell, ...]]:
    """The first epochs at which the detectors fire, by seed: the plots' marks as a table."""
    t = _thresholds_of(members[0])
    rows = []
    for member in members:
        cells = [
            _alarm_cell(member, "D1", t),
            _alarm_cell(member, "D2", t),
            _alarm_cell(member, "D2", t, PAPERS_FACTOR * t.g_norm_floor),
        ]
        lengths = dict.fromkeys(str(log[-1]["epoch"]) for log in member.logs if log)
        rows.append((Cell(member.name), *cells, Cell(" or ".join(lengths) or EMPTY_CELL)))
    return rows


def _first_alarms(member: Member, check: str, t: DiagnosticThresholds, floor: float | None = None) -> list[int | None]:
    """The first epoch at which a detector fires, in each seed that was watched; None where it never fires."""
    return [first_alarm_epoch(log, alarm_of(check, t, floor)) for log in member.logs if any(map(is_watched, log))]


def _alarm_cell(member: Member, check: str, t: DiagnosticThresholds, floor: float | None = None) -> Cell:
    found = ["never" if epoch is None else str(epoch) for epoch in _first_alarms(member, check, t, floor)]
    if not found:
        return Cell(UNWATCHED if any(member.logs) else NO_LOG)
    unwatched = len(member.logs) - len(found)
    note = f" ({unwatched} of {len(member.logs)} not watched)" if unwatched else ""
    return Cell((found[0] if len(set(found)) == 1 else ", ".join(found)) + note)


def _multiple(member: Member, t: DiagnosticThresholds, scales: dict[str, AxisScale], span: tuple[int, int]) -> Multiple:
    levels = {GROWTH: ("D1", t.h_norm_explosion_ratio), TOP_GRAD: ("D2", t.g_norm_floor)}
    panels = []
    for key, scale in scales.items():
        axes = SvgAxes(TITLES[key], "epoch", *span, scale, _LABEL_SPACE if key == ACCURACY else 0)
        series = _series(member, key)
        if series:
            means = mean_of(list(series.values()), scale.log)
            parts = [*_alarm_marks(axes, member, t, key), *_curves(axes, series, means, key)]
            if key in levels:
                check, level = levels[key]
                # The threshold's label avoids the alarm marks as well as the curves.
                marks: list[Point] = [(epoch, level) for epoch in _first_alarms(member, check, t) if epoch is not None]
                parts = [*axes.threshold(level, f"{check} {size(level)}", [*series.values(), means, marks]), *parts]
        else:
            parts = [axes.words(UNWATCHED if any(member.logs) else NO_LOG)]
        panels.append(axes.drawn(parts, f"{TITLES[key]} of {member.name} by epoch"))
    return Multiple(member, tuple(panels), tuple(_notes(member)))


def _alarm_marks(axes: SvgAxes, member: Member, t: DiagnosticThresholds, key: str) -> list[Markup]:
    """Vertical lines at the first alarms, with labels on separate lines and drawn last, so that nothing covers them."""
    lines, labels = [], []
    for row, (check, quantity) in enumerate(_DETECTORS.items()):
        if key not in (quantity, ACCURACY):
            continue
        epochs = _first_alarms(member, check, t)
        known = sorted({epoch for epoch in epochs if epoch is not None})
        lines += [axes.mark(epoch, f"fired {check}") for epoch in known]
        if key == quantity:
            labels.append(axes.text_right_of_title(_alarm_text(check, epochs)))
        elif known:
            labels.append(_detector_label(axes, known[0], check, row))
    return lines + labels


def _detector_label(axes: SvgAxes, epoch: int, check: str, row: int) -> Markup:
    """A detector's name next to its mark, on the side with space for it."""
    right = axes.x(epoch) < axes.x(axes.last) - 20 or axes.last == axes.first
    x = axes.x(epoch) + (3 if right else -3)
    return svg_text(x, TOP + 10 + 12 * row, check, "start" if right else "end", "small halo")


def _alarm_text(check: str, epochs: Sequence[int | None]) -> str:
    """`D1 at 2 to 4 in 2 of 3`: the first alarms of the seeds."""
    known = sorted(epoch for epoch in epochs if epoch is not None)
    if not known:
        return f"{check} never" if epochs else ""
    ends = " to ".join(dict.fromkeys(map(str, (known[0], known[-1]))))
    share = "" if len(known) == len(epochs) else f" in {len(known)} of {len(epochs)}"
    return f"{check} at {ends}{share}"


def _curves(axes: SvgAxes, series: Mapping[str, list[Point]], means: list[Point], key: str) -> Iterator[Markup]:
    """The curves, with a mark for every number unless there are many, and crosses for numbers that are not finite."""
    several, few = len(series) > 1, max(map(len, series.values())) <= _MANY
    for points in series.values() if several else ():
        yield from axes.curve(points, "seed")
    yield from axes.curve(means, "curve")
    for seed, points in series.items():
        for epoch, value in points:
            if value is None:
                yield axes.cross(epoch, mark_title(f"epoch {epoch:g}", seed, "not finite"))
            elif several and few:
                yield axes.dot(
                    epoch, value, "speck", 1.4, mark_title(f"epoch {epoch:g}", seed, format(value, _SPECS[key]))
                )
    for epoch, mean in means if few or len(means) == 1 else ():
        if mean is not None:
            title = mark_title(f"epoch {epoch:g}", "mean" if several else "", format(mean, _SPECS[key]))
            yield axes.dot(epoch, mean, "dot", 2.2, title)


def _series(member: Member, key: str) -> dict[str, list[Point]]:
    """The logged values by seed, for seeds whose log has this key; an epoch without a measurement has no point."""
    series: dict[str, list[Point]] = {}
    for seed, log in zip(member.seeds, member.logs, strict=True):
        series[seed] = [(int(row["epoch"]), row[key]) for row in log if key in row]
    return {seed: points for seed, points in series.items() if points}


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
