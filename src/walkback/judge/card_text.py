"""A report as plain text in 80 columns: the verdict, then claims, checks and layers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from walkback.judge.blocks import ALIGNMENT_COLUMNS, PREDICTION_COLUMNS, Block
from walkback.judge.card_document import limits
from walkback.judge.flag import Flag
from walkback.judge.layers import Layer
from walkback.judge.number import Number
from walkback.judge.report import DiagnosticReport

_WIDTH = 80


def card_text(report: DiagnosticReport) -> str:
    """The text that `print(report)` shows."""
    q = report.quantities
    title = ": ".join(filter(None, (report.method_name or "unnamed method", report.notes)))
    size = (
        f"{q.depth + 1} hidden states, {q.samples} samples in {q.groups} groups, {q.dtype}, edition {report.protocol}"
    )
    parts = [
        *_wrapped(
            [report.decision.line, *(f"{name}: {claim.shown}. {claim.reason}" for name, claim in report.claims.items())]
        ),
        "",
        *_wrapped([title, size]),
        "",
        *_table(("check", "measured", "limit", "result", "flips at", "n"), map(_check, report.flags.values())),
        *_wrapped(f"{flag.id}: {_reason(flag)}" for flag in report.flags.values()),
        "",
        *_table(("layer", "|h|", "|g|@128", "cos(g,g64)", "direction", "clamp", "cosine"), map(_layer, q.layers)),
        *_wrapped(_layer_reasons(q.layers)),
        "",
        *_blocks(q.blocks),
        *_wrapped(f"mode {mode.id}, {mode.name}" for mode in report.modes),
        *_wrapped(limits(report)),
    ]
    return "\n".join(parts)


def _check(flag: Flag) -> tuple[str, ...]:
    sign = ">" if flag.side == "above" else "<"
    return (
        flag.id,
        "-" if flag.value is None else f"{flag.value:.3g} {flag.unit}".strip(),
        "-" if flag.threshold is None else f"{sign} {flag.threshold:g}",
        flag.displayed,
        "-" if flag.flips_at is None else f"{flag.flips_at:.3g}",
        str(flag.n),
    )


def _reason(flag: Flag) -> str:
    return f"INVALID ({flag.reason})" if flag.invalid else flag.reason


def _layer(layer: Layer) -> tuple[str, ...]:
    median = layer.direction.median
    return (
        str(layer.index),
        layer.hidden_norm.short(".3g"),
        layer.grad_norm_128.short(".3g"),
        "-" if median is None else f"{median:.4f}",
        layer.direction.status,
        layer.clamp.status,
        "-" if layer.credit is None else layer.credit.cos.short("+.3f"),
    )


def _layer_reasons(layers: Sequence[Layer]) -> Iterable[str]:
    """The reason for every number that is missing or has a caveat."""
    for layer in layers:
        cos = None if layer.credit is None else layer.credit.cos
        named = {"|h|": layer.hidden_norm, "|g|": layer.grad_norm_128, "cosine": cos}
        for name, number in named.items():
            if number is not None and number.reason:
                yield f"layer {layer.index} {name}: {number:+.3f}"
        if cos is not None and cos.ok and layer.credit is not None and layer.clamp.status == "distorted":
            clamped = layer.credit.clamped
            yield f"layer {layer.index} cosine: {cos:+.3f} without the clamp; plain code reads {clamped:+.3f}"


def _blocks(blocks: Sequence[Block]) -> list[str]:
    """Two tables of blocks, alignment and predictions, with the columns that have a number; empty if there are none."""
    lines: list[str] = []
    for chosen in (ALIGNMENT_COLUMNS, PREDICTION_COLUMNS):
        columns: dict[str, list[str]] = {"block": [str(block.index) for block in blocks]}
        for head, name, spec in chosen:
            numbers: list[Number] = [getattr(block, name) for block in blocks]
            if any(number.ok for number in numbers):
                columns[head] = [number.short(spec) if number.ok else "-" for number in numbers]
        if len(columns) > 1:
            lines += [*_table(tuple(columns), list(zip(*columns.values(), strict=True))), ""]
    return lines


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _wrapped(lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, _WIDTH, subsequent_indent="  ")]
