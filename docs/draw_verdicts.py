"""Draw the flow charts of the verdicts: `python docs/draw_verdicts.py` writes `docs/static/verdict-*.svg`.

Each step names the rows of the judge's table that it stands for; a test compares them with the tables. The drawings are
part of the pages (no image files), so their colours follow the theme, light or dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from walkback.judge.thresholds import DiagnosticThresholds

FOLDER = Path(__file__).parent / "static"
_T = DiagnosticThresholds()
_LINE, _SMALL = f"{_T.frozen_acc_margin_pp:g} pp", f"{_T.small_alignment:g}"
GOOD, BAD, OPEN, NONE = "good", "bad", "open", "none"
_TINTS = {GOOD: "#1b7f3b", BAD: "#b3261e", OPEN: "#6b6b76", NONE: "#6b6b76"}
_EDGE = "var(--color-foreground-border, #8b949e)"
_SIGNS = {GOOD: "✓", BAD: "✗", OPEN: "?", NONE: "–"}
WIDTH, _LEFT, _RIGHT, _TEXT, _PAD = 484, 264, 194, 16, 10


@dataclass(frozen=True)
class Answer:
    """What is concluded where a question is answered by `when`."""

    when: str
    outcome: str
    tone: str


@dataclass(frozen=True)
class Step:
    """A question in two or three short lines; the first that decides ends the chart."""

    question: tuple[str, ...]
    answers: tuple[Answer, ...]
    rows: tuple[str, ...]
    """The rows of the judge's table that this step stands for."""


@dataclass(frozen=True)
class Chart:
    name: str
    title: str
    steps: tuple[Step, ...]
    last: Answer
    last_rows: tuple[str, ...]

    @property
    def rows(self) -> list[str]:
        return [row for step in self.steps for row in step.rows] + list(self.last_rows)


def _step(question: str, *answers: Answer, rows: str) -> Step:
    return Step(tuple(question.split("\n")), answers, tuple(rows.split("; ")))


CHARTS = (
    Chart(
        "headline",
        "The verdict, from the two claims: the first that applies",
        (
            _step("Depth cannot be judged?", Answer("yes", "cannot be judged", OPEN), rows="cannot be judged"),
            _step(
                "Depth is walked back, or a\nclaimed alignment is walked\nback or invalid?",
                Answer("yes", "walked back", BAD),
                rows="walked back",
            ),
            _step(
                "Depth stands, and alignment\nstands, is trivial, not made\nor not claimed?",
                Answer("yes", "trustworthy", GOOD),
                rows="trustworthy",
            ),
        ),
        Answer("otherwise", "inconclusive", OPEN),
        ("inconclusive",),
    ),
    Chart(
        "depth",
        "Depth: did training the blocks help?",
        (
            _step("Is this a frozen baseline itself?", Answer("yes", "not applicable", NONE), rows="frozen"),
            _step(
                "Is the accuracy of a frozen\nbaseline known?", Answer("no", "not checked", NONE), rows="no baseline"
            ),
            _step(
                "Are the outputs finite, and do\nthey differ between samples?",
                Answer("no", "cannot be judged", OPEN),
                rows="not finite",
            ),
            _step("Is backprop above chance?", Answer("no", "not informative", NONE), rows="chance"),
            _step(
                "Does the margin have an interval?\n(several seeds, or the number\nof test samples)",
                Answer("no", "inconclusive", OPEN),
                rows="no interval",
            ),
            _step(f"Is its whole interval\nat or above {_LINE}?", Answer("yes", "stands", GOOD), rows="stands"),
            _step(
                f"Do backprop's trained blocks gain\n{_LINE} here, so that depth is\nneeded at all?",
                Answer("no", "not informative", NONE),
                Answer("not known", "inconclusive", OPEN),
                rows="depth not needed; gate undecided",
            ),
            _step(
                f"Is the whole interval\nunder {_LINE}?", Answer("yes", "walked back: no margin", BAD), rows="no margin"
            ),
        ),
        Answer(f"{_LINE} lies inside", "inconclusive", OPEN),
        ("undecided",),
    ),
    Chart(
        "alignment",
        "Alignment: does the credit point along the gradient?",
        (
            _step("Is this a frozen baseline itself?", Answer("yes", "not applicable", NONE), rows="frozen"),
            _step("Was a credit or an update\nmeasured?", Answer("no", "not made", NONE), rows="no credit"),
            _step(
                "Is the reference the derivative\nof the loss, and finite?",
                Answer("no", "invalid", BAD),
                rows="invalid",
            ),
            _step(
                "Is the credit exact, or does it\nhave the weights' signs,\nby construction?",
                Answer("yes", "trivial", NONE),
                rows="exact; signs",
            ),
            _step(
                "Does float64 reproduce the\ndirection of the gradients?",
                Answer("no", "walked back: noise", BAD),
                Answer("in part", "inconclusive", OPEN),
                rows="noise; unsure",
            ),
            _step(
                "Does the credit point against\nthe gradient?",
                Answer("yes", "walked back: anti-aligned", BAD),
                rows="anti-aligned",
            ),
            _step(
                "Is the mean cosine above that\nof randomly rotated credit?",
                Answer("not measured", "inconclusive", OPEN),
                Answer(f"no, {_SMALL} excluded", "walked back: null", BAD),
                Answer("not shown", "inconclusive", OPEN),
                rows="null missing; absent; not shown",
            ),
            _step(
                "Is it still, without the gradient\nthat the skips carry?",
                Answer("no", "walked back: carried by the skip path", BAD),
                rows="skip path",
            ),
            _step(
                "Is it above that of freshly\ndrawn feedback?",
                Answer(f"no, {_SMALL} excluded", "walked back: null", BAD),
                Answer("not shown", "inconclusive", OPEN),
                rows="absent, fresh; not shown, fresh",
            ),
            _step(
                "Is the credit of every block\nabove its null, and every\nblock's update?",
                Answer("no", "walked back: not in block …, update of block …", BAD),
                Answer("not shown", "inconclusive", OPEN),
                rows="blocks; update; blocks not shown; update not shown",
            ),
            _step(f"Is the mean cosine under {_SMALL}?", Answer("yes", "detectable, small", NONE), rows="small"),
        ),
        Answer("otherwise", "stands", GOOD),
        ("stands",),
    ),
)


def _wrapped(text: str, columns: int = 25) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= columns:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _text(x: float, y: float, lines: list[str] | tuple[str, ...], style: str) -> str:
    spans = "".join(f'<tspan x="{x:g}" dy="{_TEXT if i else 0}">{escape(line)}</tspan>' for i, line in enumerate(lines))
    return f'<text x="{x:g}" y="{y:g}" {style}>{spans}</text>'


def _chip(answer: Answer, y: float) -> tuple[str, float]:
    """An arrow with its condition and the outcome it leads to; and the height that it takes."""
    lines, x = _wrapped(f"{_SIGNS[answer.tone]} {answer.outcome}", 22), WIDTH - _RIGHT
    height = _TEXT * len(lines) + 8
    body = "var(--color-foreground-primary, #1f2328)"
    tint = f"var(--verdict-{answer.tone}, {_TINTS[answer.tone]})"
    drawn = [
        f'<text x="{x + 2:g}" y="{y + 11:g}" fill="var(--color-foreground-secondary, #57606a)" font-size="12">'
        f"→ {escape(answer.when)}</text>",
        f'<rect x="{x:g}" y="{y + 16:g}" width="{_RIGHT - 1:g}" height="{height:g}" rx="6" fill="none" '
        f'style="stroke: {tint}; stroke-width: 1.6"/>',
        _text(
            x + 8,
            y + 16 + _TEXT,
            lines,
            f'font-weight="600" style="fill: {body if answer.tone in (OPEN, NONE) else tint}"',
        ),
    ]
    return "".join(drawn), height + 22


def draw(chart: Chart) -> str:
    body, y = [], 4.0
    for step in chart.steps:
        chips, at = [], y
        for answer in step.answers:
            drawn, height = _chip(answer, at)
            chips.append(drawn)
            at += height
        box = _TEXT * len(step.question) + 2 * _PAD
        body.append(
            f'<rect x="1" y="{y:g}" width="{_LEFT:g}" height="{box:g}" rx="6" '
            f'style="fill: var(--color-background-secondary, #f3f4f6); stroke: {_EDGE}"/>'
        )
        body.append(_text(10, y + _PAD + 12, step.question, 'style="fill: var(--color-foreground-primary, #1f2328)"'))
        body.extend(chips)
        below = max(y + box, at) + 8
        body.append(f'<path d="M 24 {y + box:g} V {below - 1:g}" style="stroke: {_EDGE}; fill: none"/>')
        y = below
    drawn, height = _chip(chart.last, y - 8)
    body.append(drawn)
    body.append(
        f'<path d="M 24 {y - 1:g} V {y + height / 2:g} H {WIDTH - _RIGHT - 6:g}" style="stroke: {_EDGE}; fill: none"/>'
    )
    spoken = ". ".join(
        f"{' '.join(step.question)} " + "; ".join(f"{a.when}: {a.outcome}" for a in step.answers)
        for step in chart.steps
    )
    spoken += f". {chart.last.when}: {chart.last.outcome}."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="verdict-chart" viewBox="0 0 {WIDTH} {y + height:g}" '
        f'role="img" '
        f'aria-labelledby="{chart.name}-title {chart.name}-desc" font-family="system-ui, sans-serif" font-size="14">\n'
        f'<title id="{chart.name}-title">{escape(chart.title)}</title>\n'
        f'<desc id="{chart.name}-desc">{escape(spoken)}</desc>\n' + "\n".join(body) + "\n</svg>\n"
    )


def main() -> None:
    for chart in CHARTS:
        (FOLDER / f"verdict-{chart.name}.svg").write_text(draw(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
